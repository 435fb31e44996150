"""The Flower apps with a grid of this process: real records, contexts and messages, no network."""

import copy

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra dpspectral[flower]")

from flwr.app import ConfigRecord, Context, RecordDict

from dpspectral import Budget, Interaction, Ledger, NotPrivate, Party, SecureSum, decompose
from dpspectral.engines.flower import client, server
from dpspectral.engines.flower.network import wait_for_nodes
from dpspectral.engines.flower.record import NAME, Envelope, answer_of
from dpspectral.parties import ring
from dpspectral.parties.question import decode
from dpspectral.parties.secure_sum.messages import Aborted, Refused, Setup

PARTIES, ITEMS, SEED = 5, 80, 3


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Messages want to know who makes them; outside of Flower's processes nobody has said so."""
    from flwr.supercore.task_identity import TaskIdentity

    for name, value in {"_task_id": 1, "_run_id": 1, "_node_id": 1}.items():
        monkeypatch.setattr(TaskIdentity, name, value)


class Grid:
    """Nodes of this process; `lost(stage, party, round)` says whose answers do not come back."""

    def __init__(self, folder, lost=lambda *_: False):
        self.contexts = {
            10 + k: Context(1, 10 + k, {"policy": str(folder / f"party{k}" / "policy.toml")}, RecordDict(), {})
            for k in range(PARTIES)
        }
        self.lost, self.seen, self.wire = lost, [], []

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            asked = Envelope.decode(message.content)
            number = int.from_bytes(asked.message[26:30], "big") if asked.message else 0
            self.seen.append((asked.stage, asked.party, message))
            found = client.answer(message, self.contexts[message.metadata.dst_node_id])
            self.wire += [asked.message, answer_of(found.content)[0] or b""]
            if not self.lost(asked.stage, asked.party, number):
                replies.append(found)
        return replies


@pytest.fixture
def folder(tmp_path, ratings):
    (tmp_path / "items.txt").write_text("\n".join(map(str, range(ITEMS))) + "\n")
    for party in range(PARTIES):
        own = tmp_path / f"party{party}"
        own.mkdir()
        pairs = ratings[party::PARTIES].tocoo()
        np.savez(own / "rows.npz", user=pairs.row, item=pairs.col)
        Ledger.create(own / "party.ledger", Budget(5, 1e-6))
        (own / "policy.toml").write_text(
            f'data = "rows.npz"\nitems = "{tmp_path / "items.txt"}"\nledger = "party.ledger"\n[allow]\n'
            f'unit = "interaction"\nfloor = 6\nepsilon = 5.0\ndelta = 1e-6\nnot_private_seed = {SEED}\n'
        )
    return tmp_path


def config(folder, **more):
    return {
        "items": str(folder / "items.txt"), "unit": "interaction", "floor": 6, "rank": 3, "epsilon": 5.0,
        "delta": 1e-6, "parties": PARTIES, "drop-tolerance": 1, "users": 1000, "out": str(folder / "basis.npz"),
        "random-state": 0, "catalogue": "none", "iterations": 2, "oversampling": 4, "patience": 5.0, **more,
    }  # fmt: skip


def in_process(ratings):
    class Seeded(Party):
        def __init__(self, number):
            super().__init__(ratings[number::PARTIES], Interaction(6), noise=NotPrivate(0))
            self.number, self.asked = number, 0

        def answer(self, question, setup):
            self.noise = NotPrivate(SEED + 1000 * self.asked + self.number)
            self.asked += 1
            return super().answer(question, setup)

    source = SecureSum([Seeded(k) for k in range(PARTIES)], drop_tolerance=1, users=1000)
    options = {"random_state": 0, "catalogue": None, "iterations": 2, "oversampling": 4}
    return decompose(source, 3, Interaction(6), Budget(5, 1e-6), **options).components


def entries(folder):
    return [len(Ledger.open(folder / f"party{k}" / "party.ledger").entries) for k in range(PARTIES)]


def test_the_basis_is_that_of_the_in_process_run(folder, ratings):
    server.run(Grid(folder), config(folder))
    assert np.array_equal(np.load(folder / "basis.npz")["components"], in_process(ratings))
    assert entries(folder) == [2] * PARTIES


def test_a_node_that_is_lost_within_the_tolerance_does_not_stop_the_run(folder, ratings):
    server.run(Grid(folder, lambda stage, party, number: (stage, party, number) == ("unmask", 2, 1)), config(folder))
    assert np.array_equal(np.load(folder / "basis.npz")["components"], in_process(ratings))


def test_too_many_lost_nodes_end_the_run_without_a_result(folder):
    grid = Grid(folder, lambda stage, party, number: stage == "masked" and party in (1, 3))
    with pytest.raises(Aborted, match=r"3 of 5 parties are left.*no answer within"):
        server.run(grid, config(folder))
    assert not (folder / "basis.npz").exists()
    assert entries(folder) == [1] * PARTIES  # their answers have left; nobody can tell them that nothing was opened


def test_no_message_holds_raw_data_or_an_unmasked_vector(folder, monkeypatch):
    """Everything on the wire, against each party's vectors (with and without noise, packed and not) and rows."""
    secrets, real = [], Party.answer

    def answer(self, question, setup):
        asked = decode(question, setup)
        exact = asked.query.evaluate(self._data).reshape(-1)
        vector, bits, receipt = real(self, question, setup)
        for found in (exact, vector):
            secrets.extend([found.tobytes(), ring.packed(ring.encoded(found, bits), bits)])
            secrets.append(found.astype(np.int32).tobytes())
        secrets.extend([self._data.indices.tobytes(), self._data.indptr.tobytes()])
        return vector, bits, receipt

    monkeypatch.setattr(Party, "answer", answer)
    grid = Grid(folder)
    server.run(grid, config(folder))
    wire = b"|".join(grid.wire)
    assert len(secrets) == 2 * PARTIES * 8
    for secret in secrets:
        for start in (0, len(secret) // 2):  # no piece of 16 bytes that is not mostly zeros
            piece = secret[start : start + 16]
            if len(set(piece)) > 6:
                assert piece not in wire
    masked = [message for (stage, _, _), message in zip(grid.seen, grid.wire[1::2], strict=True) if stage == "masked"]
    assert all(len(message) > 300 for message in masked)


def test_every_message_again_is_refused(folder):
    grid = Grid(folder)
    server.run(grid, config(folder))
    before = entries(folder)
    for _stage, _party, message in grid.seen:
        context = grid.contexts[message.metadata.dst_node_id]
        assert answer_of(client.answer(message, context).content)[0] is None
    assert entries(folder) == before


def test_an_old_state_cannot_answer_a_round_twice(folder):
    """A node whose state was put back to before the question: its disk remembers."""
    grid, states = Grid(folder), {}
    real = client.answer

    def remembering(message, context):
        asked = Envelope.decode(message.content)
        if asked.stage == "masked" and asked.party == 0:
            states.setdefault("before", copy.deepcopy(context.state))
        return real(message, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "answer", remembering)
        server.run(grid, config(folder))
    message = next(message for stage, party, message in grid.seen if (stage, party) == ("masked", 0))
    context = grid.contexts[message.metadata.dst_node_id]
    context.state = states["before"]
    assert answer_of(client.answer(message, context).content)[0] is None
    assert entries(folder) == [2] * PARTIES


def test_another_catalogue_or_a_stricter_policy_means_no_answer(folder):
    (folder / "other.txt").write_text("\n".join(map(str, reversed(range(ITEMS)))) + "\n")
    with pytest.raises(Aborted, match="items: the server has another list"):
        server.run(Grid(folder), config(folder, items=str(folder / "other.txt")))
    with pytest.raises(Aborted, match="epsilon: 6 was asked for, the policy allows at most 5"):
        server.run(Grid(folder), config(folder, epsilon=6.0))
    assert entries(folder) == [0] * PARTIES


def test_a_server_goes_on_from_its_state(folder, ratings):
    """It dies when it is about to ask for the second sum; the nodes have forgotten the run when it comes back."""

    class Dying(Grid):
        def send_and_receive(self, messages, *, timeout=None):
            asked = Envelope.decode(messages[0].content)
            if asked.stage == "masked" and int.from_bytes(asked.message[26:30], "big") == 1:
                raise KeyboardInterrupt
            return super().send_and_receive(messages, timeout=timeout)

    with pytest.raises(KeyboardInterrupt):
        server.run(Dying(folder), config(folder, state=str(folder / "state")))
    assert entries(folder) == [1] * PARTIES
    assert not (folder / "basis.npz").exists()
    server.run(Grid(folder), config(folder, state=str(folder / "state")))
    assert entries(folder) == [2] * PARTIES
    assert np.load(folder / "basis.npz")["components"].shape == (ITEMS, 3)


def test_reasons_stay_with_the_party(folder, caplog):
    (folder / "party1" / "rows.npz").unlink()
    grid = Grid(folder)
    with pytest.raises(Aborted) as caught:
        server.run(grid, config(folder, **{"drop-tolerance": 0}))
    assert "rows.npz" not in str(caught.value)
    assert "rows.npz" in caplog.text


def test_what_is_no_message_is_refused(folder):
    for content in (RecordDict(), RecordDict({NAME: ConfigRecord({"run": b"short"})})):
        with pytest.raises(Refused):
            Envelope.decode(content)
    setup = Setup(bytes(16), 5, 1, 0, 3, bytes(32))
    coded = Envelope(setup, 2, "digest", "masked", b"bytes").encode()
    assert Envelope.decode(coded) == Envelope(setup, 2, "digest", "masked", b"bytes")
    coded.config_records[NAME]["party"] = 7
    with pytest.raises(Refused):
        Envelope.decode(coded)


def test_waiting_for_nodes_has_an_end(folder):
    assert wait_for_nodes(Grid(folder), 3, 1.0) == [10, 11, 12]
    with pytest.raises(Aborted, match="5 nodes are connected"):
        wait_for_nodes(Grid(folder), 6, 0.3)
