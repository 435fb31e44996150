"""One fraction over all stages: it never falls, and the rest is told once something is known about it."""

import pytest

from dpspectral import Budget, Interaction, PrivateCatalogue, dense_release
from dpspectral.data.synthetic import tastes
from dpspectral.methods import stages
from dpspectral.methods.stages import Stages


def test_stages_add_up(monkeypatch):
    clock, told = [0.0], []
    monkeypatch.setattr(stages.time, "monotonic", lambda: clock[0])
    whole = Stages(lambda text, part: told.append((text, part)), {"one": 1.0, "two": 3.0})
    one, two = whole.telling("one"), whole.telling("two")
    one("first", 0.5)
    one("first", 0.2)
    clock[0] = 10.0
    one("first", 2.0)
    two("second", 0.5)
    two("second", 1.0)
    assert [part for _, part in told] == pytest.approx([0.125, 0.125, 0.25, 0.625, 1.0])
    assert [text for text, _ in told] == [
        "first",
        "first",
        "first, up to 30 s left",
        "second, up to 6 s left",
        "second",
    ]
    clock[0] = 1000.0
    whole = Stages(lambda text, part: told.append((text, part)), {"one": 1.0})
    clock[0] = 2000.0
    whole.telling("one")("slow", 0.25)
    assert told[-1] == ("slow, up to 50 min left", 0.25)
    assert Stages(None, {"one": 1.0}).telling("one") is None


@pytest.mark.parametrize("storage", ["stored", "lazy"])
@pytest.mark.parametrize("config", [None, PrivateCatalogue()], ids=repr)
def test_a_dense_release_says_what_it_does_and_moves_forward(storage, config):
    told = []
    dense_release(
        tastes(users=800, items=200), 4, unit=Interaction(5), budget=Budget(2, 1e-6), catalogue=config,
        storage=storage, progress=lambda text, part: told.append((text.split(":")[0].split(",")[0], part)),
    )  # fmt: skip
    parts = [part for _, part in told]
    assert parts == sorted(parts)
    assert 0 < parts[0] < 1
    assert parts[-1] <= 1
    texts = list(dict.fromkeys(text for text, _ in told))
    wanted = [*(["item-item matrix"] if storage == "stored" else []), *(["comparing catalogues"] if config else [])]
    assert texts == [*wanted, "eigenvectors"]
