"""What a report says about an epoch of a stream: weeks, noise, and that one bound holds for all of them together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpspectral.core import checks
from dpspectral.methods.result import Result
from dpspectral.methods.schedules import noise_factor
from dpspectral.privacy.counter import Counter
from dpspectral.privacy.units import Interaction, User
from dpspectral.reports import meaning, page

ALL = "this output and those of all other epochs, past and to come"
_DRAWN = 40  # epochs that are drawn, evenly


def parts(result: Result, relation: str) -> list[str]:
    """Weeks and noise."""
    stream = result.facts.stream or {}
    epoch, counter = checks.integer("epoch", stream["epoch"], low=1), _counter(stream)
    factors = _factors(epoch, counter, relation)
    moved = stream.get("moved")
    rows = [
        ("this stream", f"{factors[-1][1]:.2f}"),
        (f"{epoch} separate fits on the same total", f"{math.sqrt(epoch):.2f}"),
    ]
    told = (
        f"This is epoch {epoch} of a stream that goes on for {counter.describe()}. Its whole budget was charged once, "
        "when it was created; a further epoch costs nothing more. An epoch was released once, and is never released "
        f"again. {stream.get('kept', 0):,} items are in the released matrix."
    )
    if moved is not None:
        told += f" Since the epoch before the basis has turned by {float(moved):.3f} of 1 (0: not at all)."
    mu = result.facts.budget.mu if result.facts.budget is not None else None
    bound = (
        ""
        if mu is None
        else f"Whoever has seen {ALL}, is right about {meaning.of(relation).secret} in at most "
        f"{meaning.of_hundred(meaning.guess(mu))} of 100 cases. "
    )
    return [
        page.paragraph(told),
        page.table(("noise of the matrix, beside one fit with the whole budget", "times"), rows),
        page.picture(
            page.svg(_draw(factors)),
            "Noise of each epoch's matrix beside one fit with the whole budget, of this stream (line) and of as many "
            "separate fits as there were epochs (dashed).",
        ),
        page.paragraph(
            f"{bound}Who asked to be forgotten is left out of all later epochs. What was released before stays, with "
            "this bound, and its influence on later results fades."
        ),
    ]


def _counter(stream: Mapping[str, Any]) -> Counter:
    return Counter(stream.get("half_life"), stream.get("horizon"))


def _factors(epoch: int, counter: Counter, relation: str) -> list[tuple[int, float]]:
    unit = Interaction(floor=1) if relation.startswith("interaction") else User()
    chosen = sorted({max(1, round(epoch * k / _DRAWN)) for k in range(1, _DRAWN + 1)})
    return [(t, noise_factor(counter, t, unit)) for t in chosen]


def _draw(factors: list[tuple[int, float]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.0), layout="constrained")
    panel = figure.subplots()
    epochs, values = zip(*factors, strict=True)
    panel.plot(epochs, values, color="#3b82f6", marker=".", label="this stream")
    panel.plot(epochs, [math.sqrt(t) for t in epochs], color="black", linestyle="--", label="separate fits")
    panel.set_xlabel("epoch")
    panel.set_ylabel("noise, times one fit")
    panel.set_ylim(bottom=0)
    panel.legend(frameon=False)
    return figure
