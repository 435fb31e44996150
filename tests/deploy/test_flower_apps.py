"""The Flower apps with a grid of this process: real records, contexts and messages, no network."""

import copy
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra dpspectral[flower]")

from flwr.app import ConfigRecord, Context, RecordDict

from dpspectral import Budget, Interaction, Ledger, NotPrivate, Party, PowerOptions, SecureSum, decompose
from dpspectral.deploy.flower import client_app as client
from dpspectral.deploy.flower import server_app as server
from dpspectral.deploy.flower.envelope import NAME, Envelope, answer_of
from dpspectral.deploy.flower.flower_network import FlowerNetwork, wait_for_nodes
from dpspectral.protocols.common import keys, ring
from dpspectral.protocols.common.catalogue_digest import catalogue_digest
from dpspectral.protocols.common.encoding import AbortedError, RefusedError, bitmap, table
from dpspectral.protocols.common.encoding import entries as records
from dpspectral.protocols.common.question import Question, decode
from dpspectral.protocols.secure_sum import memory, shamir
from dpspectral.protocols.secure_sum.client import MASK_KEY, SELF_MASK
from dpspectral.protocols.secure_sum.messages import Frame, Kind
from dpspectral.protocols.secure_sum.server import Wave
from dpspectral.protocols.secure_sum.setup import Setup
from dpspectral.release.queries import Popularity

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

    source = SecureSum([Seeded(k) for k in range(PARTIES)], drop_tolerance=1, max_users=1000)
    options = {"random_state": 0, "catalogue": None, "power": PowerOptions(2, 4)}
    return decompose(source, 3, unit=Interaction(6), budget=Budget(5, 1e-6), **options).components


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
    with pytest.raises(AbortedError, match=r"3 of 5 parties are left.*no answer within"):
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


def test_nothing_but_its_answer_leaves_a_party(folder, monkeypatch, caplog):
    """No time, and no size that depends on its rows: party 0 has a hundred times the others' interactions."""
    rows = np.load(folder / "party0" / "rows.npz")
    more = {name: np.concatenate([found, *(found for _ in range(99))]) for name, found in rows.items()}
    more["user"] = np.concatenate([rows["user"] + 1000 * copies for copies in range(100)])
    np.savez(folder / "party0" / "rows.npz", **more)
    real, sizes, grid = client.answer, {}, Grid(folder)

    def watched(message, context):
        found, asked = real(message, context), Envelope.decode(message.content)
        assert list(found.content) == [NAME]
        assert set(found.content[NAME]) == {"answer", "answered", "reason"}
        sizes.setdefault((asked.stage, asked.message[26:30]), set()).add(len(found.content[NAME]["answer"]))
        return found

    monkeypatch.setattr(client, "answer", watched)
    with caplog.at_level("INFO", logger="dpspectral.flower"):
        server.run(grid, config(folder))
    assert len(sizes) == 3 + 2 * 3
    assert all(len(found) == 1 for found in sizes.values())
    assert "MB (mean)" in caplog.text
    assert "computed" not in caplog.text


def test_every_message_again_is_refused(folder):
    grid = Grid(folder)
    server.run(grid, config(folder))
    before = entries(folder)
    for _stage, _party, message in grid.seen:
        context = grid.contexts[message.metadata.dst_node_id]
        assert answer_of(client.answer(message, context).content)[0] is None
    assert entries(folder) == before


def other_message(stage, setup, message):
    """Another one of the same stage that a client in the right state would answer, or None."""
    body = message[30:-16]
    if stage == "masked":
        body += b"x"
    elif stage == "confirm":
        body = bitmap(set(range(PARTIES)) - {4}, PARTIES)
    elif stage == "unmask":
        body = table(dict(list(records(body, 64).items())[:-1]))
    else:
        return None
    return Frame(Kind(message[5]), setup.run, 0, int.from_bytes(message[26:30], "big"), body).encode()


def test_an_old_state_cannot_answer_a_stage_twice(folder):
    """A node whose state is put back to what it was before each message: its disk remembers, whatever it is asked."""
    grid, before = Grid(folder), []
    real = client.answer

    def remembering(message, context):
        if Envelope.decode(message.content).party == 0:
            before.append((message, copy.deepcopy(context.state)))
        return real(message, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "answer", remembering)
        server.run(grid, config(folder))
    assert len(before) == 3 + 2 * 3
    for message, state in before:
        asked = Envelope.decode(message.content)
        other = other_message(asked.stage, asked.setup, asked.message)
        for content in [asked.message, *([] if other is None else [other])]:
            again = copy.deepcopy(message)
            again.content = replace(asked, message=content).encode()
            context = grid.contexts[message.metadata.dst_node_id]
            context.state = copy.deepcopy(state)
            assert answer_of(client.answer(again, context).content)[0] is None
    assert entries(folder) == [2] * PARTIES


@pytest.mark.parametrize("marked", [{"masked"}, {"keys", "shares", "delivery", "masked", "confirm", "unmask"}])
def test_old_states_of_all_nodes_do_not_open_both_secrets_of_a_party(folder, monkeypatch, marked):
    """They are told that party 4 survived, put back, and told that it did not. A marker for the question alone (so in
    version 0.1.0) lets the server have both of its secrets, and its answer lies open."""
    real, opened = memory.Answered.begin, {}
    monkeypatch.setattr(memory.Answered, "begin", lambda *given: real(*given) if given[-1] in marked else None)
    grid = Grid(folder)
    network = FlowerNetwork(
        grid, grid.get_node_ids(), catalogue=catalogue_digest(folder / "items.txt"), collusion=1, drop_tolerance=1,
        rounds=2, patience=5.0,
    )  # fmt: skip
    query = Popularity(Interaction(6), ITEMS, noise_shares=network.setup.noise_shares)
    asked = Question("popularity", query, 0.3, Budget(5, 1e-6), network.setup, 1000)
    network.start()

    def wave(stage, kind, body, parties=range(PARTIES - 1)):
        messages = Wave(tuple(parties), lambda party: Frame(kind, network.setup.run, party, 0, body).encode())
        return {party: found[30:-16] for party, found in network.exchange(stage, messages) if found is not None}

    everybody = bitmap(range(PARTIES), PARTIES)
    assert len(wave("masked", Kind.ASK, everybody + asked.encode(), range(PARTIES))) == PARTIES
    old = {node: copy.deepcopy(context.state) for node, context in grid.contexts.items()}
    for survivors in (everybody, bitmap(range(PARTIES - 1), PARTIES)):
        for node, context in grid.contexts.items():
            context.state = copy.deepcopy(old[node])
        signatures = wave("confirm", Kind.SURVIVORS, survivors)
        for party, body in wave("unmask", Kind.CONFIRMED, table(signatures)).items():
            share = records(body, 34)[4]
            opened.setdefault(share[0], {})[party + 1] = share[1:]
    threshold = network.setup.graph.threshold
    found = {kind: shamir.opened(dict(list(shares.items())[:threshold])) for kind, shares in opened.items()}
    assert keys.digest(found[SELF_MASK]) == network.server.keys[4].commitments[0]
    if len(marked) > 1:
        assert MASK_KEY not in found
    else:
        assert keys.public_key(found[MASK_KEY]) == network.server.keys[4].mask_keys[0]


def test_damaged_or_misplaced_messages_leave_no_marker(folder):
    """They cost nothing: the right message is answered afterwards."""
    grid, real = Grid(folder), client.answer

    def pestered(message, context):
        asked = Envelope.decode(message.content)
        if asked.stage != "keys":
            wrong = [
                replace(asked, message=asked.message[:-1] + bytes([asked.message[-1] ^ 1])),
                replace(asked, message=b""),
                replace(asked, stage="unmask" if asked.stage == "masked" else "masked"),
                replace(asked, stage="anything"),
                replace(asked, party=(asked.party + 1) % PARTIES),
            ]
            for one in wrong:
                again = copy.deepcopy(message)
                again.content = one.encode()
                assert answer_of(real(again, context).content)[0] is None
        return real(message, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "answer", pestered)
        server.run(grid, config(folder))
    assert (folder / "basis.npz").exists()


def test_another_catalogue_or_a_stricter_policy_means_no_answer(folder):
    (folder / "other.txt").write_text("\n".join(map(str, reversed(range(ITEMS)))) + "\n")
    with pytest.raises(AbortedError, match="items: the server has another list"):
        server.run(Grid(folder), config(folder, items=str(folder / "other.txt")))
    with pytest.raises(AbortedError, match="epsilon: 6 was asked for, the policy allows at most 5"):
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
    with pytest.raises(AbortedError) as caught:
        server.run(grid, config(folder, **{"drop-tolerance": 0}))
    assert "rows.npz" not in str(caught.value)
    assert "rows.npz" in caplog.text


def test_what_is_no_message_is_refused(folder):
    for content in (RecordDict(), RecordDict({NAME: ConfigRecord({"run": b"short"})})):
        with pytest.raises(RefusedError):
            Envelope.decode(content)
    setup = Setup(bytes(16), 5, 1, 0, 3, bytes(32))
    coded = Envelope(setup, 2, "digest", "masked", b"bytes").encode()
    assert Envelope.decode(coded) == Envelope(setup, 2, "digest", "masked", b"bytes")
    coded.config_records[NAME]["party"] = 7
    with pytest.raises(RefusedError):
        Envelope.decode(coded)


def test_waiting_for_nodes_has_an_end(folder):
    assert wait_for_nodes(Grid(folder), 3, 1.0) == [10, 11, 12]
    with pytest.raises(AbortedError, match="5 nodes are connected"):
        wait_for_nodes(Grid(folder), 6, 0.3)
