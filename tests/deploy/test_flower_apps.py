"""The Flower apps with a grid of this process: real records and messages, real sockets to the parties, no network."""

import shutil
import stat
import tempfile
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra dpspectral[flower]")

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict

from dpspectral import Budget, Interaction, Ledger, NotPrivate, Party, PowerOptions, Result, SecureSum, decompose
from dpspectral.deploy.flower import client_app as client
from dpspectral.deploy.flower import server_app as server
from dpspectral.deploy.flower.envelope import NAME, enclosed, frame_of, replied, reply_of
from dpspectral.deploy.flower.flower_network import FlowerNetwork, wait_for_nodes
from dpspectral.deploy.party.carrier import Reply
from dpspectral.deploy.party.identity import make_identity, read_members
from dpspectral.deploy.party.local_socket import SocketServer
from dpspectral.deploy.party.plan import Plan
from dpspectral.deploy.party.policy import Policy
from dpspectral.deploy.party.service import Service
from dpspectral.deploy.settings import SettingsError
from dpspectral.protocols.common import keys, ring
from dpspectral.protocols.common.catalogue_digest import catalogue_digest
from dpspectral.protocols.common.encoding import AbortedError, bitmap, table
from dpspectral.protocols.common.encoding import entries as records
from dpspectral.protocols.common.question import Question, decode
from dpspectral.protocols.secure_sum import memory, shamir
from dpspectral.protocols.secure_sum.client import MASK_KEY, SELF_MASK
from dpspectral.protocols.secure_sum.messages import Frame, Kind
from dpspectral.protocols.secure_sum.server import Wave
from dpspectral.release.queries import Popularity

PARTIES, ITEMS, SEED = 5, 80, 3


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A node whose party's process is not there does not wait for it."""
    monkeypatch.setattr(client, "RESTART", 0.0)


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Messages want to know who makes them; outside of Flower's processes nobody has said so."""
    from flwr.supercore.task_identity import TaskIdentity

    for name, value in {"_task_id": 1, "_run_id": 1, "_node_id": 1}.items():
        monkeypatch.setattr(TaskIdentity, name, value)


def place(frame):
    """Kind, party and round of a frame."""
    return Kind(frame[5]), int.from_bytes(frame[22:26], "big"), int.from_bytes(frame[26:30], "big")


class Grid:
    """Nodes of this process; `lost(kind, party, round)` says whose answers do not come back."""

    def __init__(self, folder, lost=lambda *_: False):
        self.contexts = {
            10 + k: Context(1, 10 + k, {"socket": str(folder / f"{k}.sock")}, RecordDict(), {}) for k in range(PARTIES)
        }
        self.lost, self.seen, self.wire, self.replies = lost, [], [], {}

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(len(self.seen))
            frame = frame_of(message.content)
            found = client.answer(message, self.contexts[message.metadata.dst_node_id])
            answer = reply_of(found.content).answer or b""
            self.seen.append((message, answer))
            self.wire += [frame, answer]
            if not (answer and self.lost(*place(answer))):
                self.replies[message.metadata.message_id] = found
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, numbers):
        return [self.replies.pop(number) for number in numbers if number in self.replies]


@pytest.fixture
def folder(ratings):
    """Files of five parties (in a place whose name is short enough for sockets), and their processes, as threads."""
    made = Path(tempfile.mkdtemp(prefix="dps"))
    (made / "items.txt").write_text("\n".join(map(str, range(ITEMS))) + "\n")
    lines = []
    for party in range(PARTIES):
        own = made / f"party{party}"
        own.mkdir()
        pairs = ratings[party::PARTIES].tocoo()
        np.savez(own / "rows.npz", user=pairs.row, item=pairs.col)
        Ledger.create(own / "party.ledger", Budget(5, 1e-6))
        lines.append(make_identity(own / "identity.key", f"party{party}"))
        (own / "policy.toml").write_text(
            f'data = "rows.npz"\nitems = "../items.txt"\nledger = "party.ledger"\nmembers = "../members.txt"\n[allow]\n'
            f'unit = "interaction"\nfloor = 6\nepsilon = 5.0\ndelta = 1e-6\nnot_private_seed = {SEED}\n'
        )
    (made / "members.txt").write_text("\n".join(lines) + "\n")
    running = Running(made)
    yield made
    running.stop()
    shutil.rmtree(made)


class Running:
    """The parties' processes."""

    def __init__(self, folder):
        self.folder, self.servers, self.services = folder, {}, {}
        running[folder] = self
        for party in range(PARTIES):
            self.start(party)

    def start(self, party):
        policy = Policy.read(self.folder / f"party{party}" / "policy.toml")
        self.services[party] = Service(policy)
        self.servers[party] = SocketServer(self.folder / f"{party}.sock", self.services[party].receive)
        self.servers[party].background(0.02)

    def stop(self, *parties):
        for party in parties or list(self.servers):
            found = self.servers.pop(party)
            found.shutdown()
            found.server_close()

    def restart(self, party):
        self.stop(party)
        self.start(party)


running = {}


def config(folder, **more):
    return {
        "items": str(folder / "items.txt"), "unit": "interaction", "floor": 6, "rank": 3, "epsilon": 5.0,
        "delta": 1e-6, "members": str(folder / "members.txt"), "drop-tolerance": 1, "users": 1000,
        "out": str(folder / "basis.npz"),
        "random-state": 0, "catalogue": "none", "iterations": 2, "oversampling": 4, "patience": 1.0, **more,
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
    assert np.array_equal(Result.load(folder / "basis.npz").components, in_process(ratings))
    assert entries(folder) == [2] * PARTIES


def test_a_node_that_is_lost_within_the_tolerance_does_not_stop_the_run(folder, ratings):
    server.run(Grid(folder, lambda *given: given == (Kind.UNMASK, 2, 1)), config(folder))
    assert np.array_equal(Result.load(folder / "basis.npz").components, in_process(ratings))


def test_too_many_lost_nodes_end_the_run_without_a_result(folder):
    grid = Grid(folder, lambda kind, party, number: kind is Kind.MASKED and party in (1, 3))
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
    masked = [answer for answer in grid.wire[1::2] if place(answer)[0] is Kind.MASKED]
    assert len(masked) == 2 * PARTIES
    assert all(len(answer) > 300 for answer in masked)


def test_nothing_but_its_answer_leaves_a_party(folder, monkeypatch, caplog):
    """No time, and no size that depends on its rows: party 0 has a hundred times the others' interactions."""
    rows = np.load(folder / "party0" / "rows.npz")
    more = {name: np.concatenate([found, *(found for _ in range(99))]) for name, found in rows.items()}
    more["user"] = np.concatenate([rows["user"] + 1000 * copies for copies in range(100)])
    np.savez(folder / "party0" / "rows.npz", **more)
    running[folder].restart(0)
    real, sizes, grid = client.answer, {}, Grid(folder)

    def watched(message, context):
        found = real(message, context)
        assert list(found.content) == [NAME]
        assert set(found.content[NAME]) == {"answer", "answered", "reason"}
        assert not context.state
        kind, _, number = place(frame_of(message.content))
        sizes.setdefault((kind, number), set()).add(len(found.content[NAME]["answer"]))
        return found

    monkeypatch.setattr(client, "answer", watched)
    with caplog.at_level("INFO", logger="dpspectral.flower"):
        server.run(grid, config(folder))
    assert len(sizes) == 4 + 2 * 3
    assert all(len(found) == 1 for found in sizes.values())
    assert "MB (mean)" in caplog.text
    assert "computed" not in caplog.text


def test_every_message_again_is_refused(folder):
    """By the process that answered it, and by one that was started since."""
    grid = Grid(folder)
    server.run(grid, config(folder))
    before = entries(folder)
    for restarted in (False, True):
        for party in range(PARTIES) if restarted else ():
            running[folder].restart(party)
        for message, _ in grid.seen:
            context = grid.contexts[message.metadata.dst_node_id]
            assert reply_of(client.answer(message, context).content).answer is None
    assert entries(folder) == before


@pytest.mark.parametrize("marked", [True, False])
def test_copies_of_all_processes_do_not_open_both_secrets_of_a_party(folder, monkeypatch, marked):
    """Virtual machines, say, that are put back: told that party 4 survived, put back, told that it did not. Without
    markers on disk the server has both of its secrets, and its answer lies open."""
    real, opened = memory.Answered.begin, {}
    monkeypatch.setattr(memory.Answered, "begin", lambda *given: real(*given) if marked else None)
    grid = Grid(folder)
    network = FlowerNetwork(
        grid, grid.get_node_ids(), read_members(folder / "members.txt"),
        catalogue=bytes.fromhex(catalogue_digest(folder / "items.txt")), plan=Plan(Budget(5, 1e-6)), collusion=1,
        drop_tolerance=1, rounds=2, patience=5.0,
    )  # fmt: skip
    query = Popularity(Interaction(6), ITEMS, noise_shares=network.setup.noise_shares)
    asked = Question("popularity", query, 0.3, Budget(5, 1e-6), network.setup, 1000)
    network.start()

    def wave(stage, kind, body, parties=range(PARTIES - 1)):
        messages = Wave(tuple(parties), lambda party: Frame(kind, network.setup.run, party, 0, body).encode())
        return {party: found[30:-16] for party, found in network.exchange(stage, messages) if found is not None}

    everybody = bitmap(range(PARTIES), PARTIES)
    assert len(wave("masked", Kind.ASK, everybody + asked.encode(), range(PARTIES))) == PARTIES
    clients = [running[folder].services[party]._clients[network.setup.run] for party in range(PARTIES)]
    old = [one.dump() for one in clients]
    for survivors in (everybody, bitmap(range(PARTIES - 1), PARTIES)):
        for one, content in zip(clients, old, strict=True):
            one.memory = memory.Memory.decode(content, one.setup, one.party)
        signatures = wave("confirm", Kind.SURVIVORS, survivors)
        for party, body in wave("unmask", Kind.CONFIRMED, table(signatures)).items():
            share = records(body, 34)[4]
            opened.setdefault(share[0], {})[party + 1] = share[1:]
    threshold = network.setup.graph.threshold
    found = {kind: shamir.opened(dict(list(shares.items())[:threshold])) for kind, shares in opened.items()}
    assert keys.digest(found[SELF_MASK]) == network.server.keys[4].commitments[0]
    if marked:
        assert MASK_KEY not in found
    else:
        assert keys.public_key(found[MASK_KEY]) == network.server.keys[4].mask_keys[0]


def test_damaged_or_misplaced_messages_leave_no_marker(folder):
    """They cost nothing: the right message is answered afterwards."""
    grid, real = Grid(folder), client.answer

    def pestered(message, context):
        frame = frame_of(message.content)
        kind, party, number = place(frame)
        body, run = frame[30:-16], frame[6:22]
        wrong = [frame[:-1] + bytes([frame[-1] ^ 1]), b"", frame[:40]]
        if kind is not Kind.BEGIN:
            others = [(Kind.UNMASK, party, number), (kind, (party + 1) % PARTIES, number), (kind, party, number + 100)]
            wrong += [Frame(one, run, who, when, body).encode() for one, who, when in others]
            wrong.append(Frame(kind, bytes(16), party, number, body).encode())
        for one in wrong:
            again = type(message)(enclosed(one), dst_node_id=message.metadata.dst_node_id, message_type="query")
            assert reply_of(real(again, context).content).answer is None
        return real(message, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "answer", pestered)
        server.run(grid, config(folder))
    assert (folder / "basis.npz").exists()


def test_a_party_that_is_restarted_has_dropped_out_and_is_charged_truly(folder):
    """At every stage of the second round. What had left is in its ledger, and nothing is lost for the others."""
    for number, kind in enumerate((Kind.ASK, Kind.SURVIVORS, Kind.CONFIRMED)):
        grid, real = Grid(folder), client.answer

        def killing(message, context, kind=kind, real=real):
            if place(frame_of(message.content)) == (kind, 2, 1):
                running[folder].restart(2)
            return real(message, context)

        for party in range(PARTIES):
            file = folder / f"party{party}" / "party.ledger"
            file.unlink()
            shutil.rmtree(file.with_suffix(".rounds"), ignore_errors=True)
            Ledger.create(file, Budget(5, 1e-6))
            running[folder].restart(party)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "answer", killing)
            server.run(grid, config(folder, out=str(folder / f"basis{number}.npz")))
        assert entries(folder) == [2, 2, 1 + (kind is not Kind.ASK), 2, 2]
        assert (folder / f"basis{number}.npz").exists()


@pytest.mark.parametrize("kind", [Kind.ROSTER, Kind.ASK, Kind.SURVIVORS, Kind.CONFIRMED])
def test_a_party_that_keeps_its_runs_is_restarted_and_goes_on(folder, ratings, kind):
    """The node waits for it; all five are in both sums, and each was charged once for each."""
    policy = folder / "party2" / "policy.toml"
    policy.write_text('state = "state"\n' + policy.read_text())
    running[folder].restart(2)
    restarted, real = [], client.answer

    def killing(message, context):
        if place(frame_of(message.content))[:2] == (kind, 2):
            running[folder].stop(2)
            restarted.append(threading.Timer(0.3, running[folder].start, (2,)))
            restarted[-1].start()
        return real(message, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "answer", killing)
        patch.setattr(client, "RESTART", 20.0)
        server.run(Grid(folder), config(folder))
    for timer in restarted:
        timer.join()
    assert len(restarted) == 1 + (kind is not Kind.ROSTER)
    assert entries(folder) == [2] * PARTIES
    assert np.array_equal(Result.load(folder / "basis.npz").components, in_process(ratings))


def test_what_a_party_keeps_is_for_its_owner_and_an_old_copy_answers_nothing(folder):
    policy = folder / "party2" / "policy.toml"
    policy.write_text('state = "state"\n' + policy.read_text())
    running[folder].restart(2)
    state, copies, asked, real = folder / "party2" / "state", {}, {}, client.answer

    def copying(message, context):
        kind, party, number = place(frame_of(message.content))
        if party == 2 and state.exists() and (kept := list(state.iterdir())):
            copies[kind, number] = {one.name: one.read_bytes() for one in kept}
            asked[kind, number] = message
        return real(message, context)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "answer", copying)
        server.run(Grid(folder), config(folder))
    (file,) = state.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    before = entries(folder)
    for stage, files in copies.items():  # each stage's question again, to a party as it was then
        running[folder].stop(2)
        for name, content in files.items():
            (state / name).write_bytes(content)
        running[folder].start(2)
        assert running[folder].services[2]._clients, "it remembers the run"
        assert reply_of(real(asked[stage], Grid(folder).contexts[12]).content) == Reply(None, ""), stage
    assert len(copies) == 3 + 2 * 3
    assert entries(folder) == before
    running[folder].stop(2)
    file.write_bytes(b"damaged")
    state.chmod(0o755)
    with pytest.raises(SettingsError, match="chmod 700"):
        running[folder].start(2)
    state.chmod(0o700)
    running[folder].start(2)
    assert not list(state.iterdir())


def test_who_is_behind_a_node_is_what_its_greeting_says(folder, ratings):
    """Nodes in another order than members; a node that answers in another member's name is not believed."""
    grid = Grid(folder)
    grid.contexts = {
        node: Context(1, node, {"socket": str(folder / f"{PARTIES - 1 - k}.sock")}, RecordDict(), {})
        for k, node in enumerate(grid.contexts)
    }
    grid.contexts[77] = Context(1, 77, {"socket": str(folder / "nobody.sock")}, RecordDict(), {})
    server.run(grid, config(folder))
    assert np.array_equal(Result.load(folder / "basis.npz").components, in_process(ratings))


def test_a_hostile_app_gets_to_the_socket_and_no_further(folder):
    """What it can send is frames; made-up ones, of made-up members, or of none, are refused, and nothing is charged."""
    (folder / "strangers.txt").write_text(make_identity(folder / "stranger", "x") + "\n")
    own = (folder / "members.txt").read_text().splitlines()
    (folder / "others.txt").write_text("\n".join([*own[:-1], (folder / "strangers.txt").read_text()]))
    for members in ("others.txt", "strangers.txt"):
        with pytest.raises((AbortedError, ValueError), match=r"members|parties"):
            server.run(Grid(folder), config(folder, members=str(folder / members)))
    assert entries(folder) == [0] * PARTIES
    for party in range(PARTIES):
        assert stat.S_IMODE((folder / f"{party}.sock").stat().st_mode) == 0o600


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
        def push_messages(self, messages):
            kind, _, number = place(frame_of(messages[0].content))
            if (kind, number) == (Kind.ASK, 1):
                raise KeyboardInterrupt
            return super().push_messages(messages)

    with pytest.raises(KeyboardInterrupt):
        server.run(Dying(folder), config(folder, state=str(folder / "state")))
    assert entries(folder) == [1] * PARTIES
    assert not (folder / "basis.npz").exists()
    server.run(Grid(folder), config(folder, state=str(folder / "state")))
    assert entries(folder) == [2] * PARTIES
    assert Result.load(folder / "basis.npz").components.shape == (ITEMS, 3)


def test_reasons_stay_with_the_party(folder, caplog, monkeypatch):
    def broken(_query, _rows, *_rest, **_options):
        raise OSError("rows.npz has 17 lines")

    monkeypatch.setattr("dpspectral.release.queries.Product.over", broken)
    with pytest.raises(AbortedError) as caught:
        server.run(Grid(folder), config(folder, **{"drop-tolerance": 0}))
    assert "rows.npz" not in str(caught.value)
    assert "it refused (its own log says why)" in str(caught.value)
    assert "rows.npz has 17 lines" in caplog.text
    assert entries(folder) == [0] * PARTIES


def test_a_node_without_a_party_says_so(folder, caplog):
    running[folder].stop(3)
    with pytest.raises(AbortedError, match="does not reach the party's process"):
        server.run(Grid(folder), config(folder, **{"drop-tolerance": 0}))
    grid = Grid(folder)
    grid.contexts[10] = Context(1, 10, {}, RecordDict(), {})
    with pytest.raises(AbortedError, match="does not reach the party's process"):
        server.run(grid, config(folder, **{"drop-tolerance": 0}))
    assert "--node-config" in caplog.text
    running[folder].start(3)


def test_what_is_no_message_is_refused():
    for content in (RecordDict(), RecordDict({NAME: ConfigRecord({"frame": 3})})):
        with pytest.raises(ValueError, match="not a"):
            frame_of(content)
        with pytest.raises(ValueError, match="not a"):
            reply_of(content)
    assert frame_of(enclosed(b"bytes")) == b"bytes"
    for reply in (Reply(b"answer"), Reply(None), Reply(None, "reason")):
        assert reply_of(replied(reply)) == reply
    assert reply_of(replied(Reply(None, "\x1b[2J" + "x" * 600))).reason == " [2J" + "x" * 496


def test_waiting_for_nodes_has_an_end(folder):
    assert wait_for_nodes(Grid(folder), 3, 1.0) == [10, 11, 12, 13, 14]
    with pytest.raises(AbortedError, match="5 nodes are connected"):
        wait_for_nodes(Grid(folder), 6, 0.3)


def test_messages_to_many_parties_are_streamed():
    """200 messages of 10 MB, and as many answers: never more than a few of them are in memory."""

    class Far:
        """A SuperLink that keeps what it is given elsewhere."""

        def push_messages(self, messages):
            return [str(message.metadata.dst_node_id) for message in messages]

        def pull_messages(self, numbers):
            for number in numbers:
                asked = Message(enclosed(b""), dst_node_id=int(number), message_type=MessageType.QUERY)
                asked.metadata.__dict__["_message_id"] = number
                yield Message(replied(Reply(bytes(size))), reply_to=asked)

    size, count = 10_000_000, 200
    members = [keys.signing_key(bytes([k]) * 32) for k in range(3)]
    plan = Plan(Budget(1, 1e-6))
    network = FlowerNetwork(
        Far(), range(3), members, catalogue=bytes(32), plan=plan, collusion=1, drop_tolerance=0, rounds=1, patience=60
    )
    tracemalloc.start()
    answered = sum(len(reply.answer) for _, reply in network._send((node, bytes(size)) for node in range(count)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answered == count * size
    assert peak < 300_000_000


def test_a_simulation_serves_its_parties_behind_sockets(monkeypatch, ratings):
    """Everything but ray: nodes know their number only, and reach threads with parts of the one file."""
    from dpspectral.deploy.flower import simulate as module
    from dpspectral.deploy.flower.run_config import CONFIG, run_settings

    made = Path(tempfile.mkdtemp(prefix="dps"))
    pairs = ratings.tocoo()
    np.savez(made / "all.npz", user=pairs.row, item=pairs.col)
    grid = Grid(made)
    for k, node in enumerate(grid.contexts):
        grid.contexts[node] = Context(1, node, {"partition-id": k, "num-partitions": PARTIES}, RecordDict(), {})

    def run(parties, file):
        assert parties == PARTIES
        monkeypatch.setenv(CONFIG, str(file))
        server.run(grid, run_settings({}))

    monkeypatch.setattr(module, "_run", run)
    options = config(made, data=str(made / "all.npz"), items=str(ITEMS), parties=PARTIES)
    module.simulate({**options, "not-private-seed": SEED}, made)
    assert Result.load(made / "basis.npz").components.shape == (ITEMS, 3)
    spent = [len(Ledger.open(made / f"{part}.ledger").entries) for part in range(PARTIES)]
    assert spent == [2] * PARTIES
    assert not list(made.glob("*.sock"))
    shutil.rmtree(made)
