"""A party's own process: its files, its socket, approvals, and the commands around it."""

import json
import logging
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from dpspectral import Budget, Interaction, Ledger
from dpspectral.cli import main
from dpspectral.cli.party import JsonLines, PlainLines
from dpspectral.deploy.party.approvals import Approvals
from dpspectral.deploy.party.carrier import Reply, ask, headed
from dpspectral.deploy.party.identity import make_identity, read_identity, read_members
from dpspectral.deploy.party.local_socket import SocketServer, answered
from dpspectral.deploy.party.metrics import Metrics
from dpspectral.deploy.party.plan import NotAllowedError, Plan, name_of
from dpspectral.deploy.party.policy import Policy
from dpspectral.deploy.party.service import Service
from dpspectral.deploy.settings import SettingsError
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.ledger import Release
from dpspectral.protocols.common.catalogue_digest import catalogue_digest
from dpspectral.protocols.common.encoding import RefusedError
from dpspectral.protocols.common.keys import digest, signing_key
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.secure_sum.messages import Frame, Kind
from dpspectral.protocols.secure_sum.setup import VERSION, Setup
from dpspectral.release.queries import Product

PLANNED, UNIT = Budget(2, 1e-6), Interaction()


@pytest.fixture
def short():
    """A folder whose name is short enough for sockets."""
    made = Path(tempfile.mkdtemp(prefix="dps"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def folder(short):
    """What `party init` makes, filled in, with two further members."""
    own = short / "party"
    found = CliRunner().invoke(main, ["party", "init", str(own), "--name", "us", "--epsilon", "5", "--delta", "1e-6"])
    assert found.exit_code == 0, found.output
    line = found.output.splitlines()[-1]
    others = [make_identity(short / f"other{k}", f"other{k}") for k in range(2)]
    (own / "members.txt").write_text("\n".join(["# all of us", line, "", *others]) + "\n")
    (own / "items.txt").write_text("a\nb\nc\n")
    (own / "ratings.csv").write_text("user,item\n1,a\n1,b\n2,c\n")
    (own / "ratings.csv").chmod(0o600)
    return own


def edit(folder, old, new):
    text = (folder / "policy.toml").read_text()
    assert old in text
    (folder / "policy.toml").write_text(text.replace(old, new))


def party(folder, *arguments):
    return CliRunner().invoke(main, ["party", *arguments, "--policy", str(folder / "policy.toml")])


def begin(folder, name=bytes(16), budget=PLANNED, **changes):
    members = read_members(folder / "members.txt")
    catalogue = bytes.fromhex(catalogue_digest(folder / "items.txt"))
    setup = Setup(len(members), 1, 0, 4, name, members, catalogue, Plan(budget, "a test").encode())
    setup = replace(setup, **changes)
    return Frame(Kind.BEGIN, setup.run, 0, 0, setup.terms).encode(), setup


# Files


def test_init_makes_files_that_only_the_owner_can_use(folder):
    for name in ("identity.key", "party.ledger"):
        assert stat.S_IMODE((folder / name).stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    before = {one.name: one.read_bytes() for one in folder.iterdir()}
    again = ["party", "init", str(folder), "--name", "us", "--epsilon", "5", "--delta", "1e-6"]
    found = CliRunner().invoke(main, again)
    assert found.exit_code != 0
    assert "nothing is overwritten" in found.output
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == before


def test_check_says_what_a_run_may_do(folder):
    found = party(folder, "check")
    assert found.exit_code == 0, found.output
    for words in ("1 of 3", "at most ε = 5", "in any 30 days", "every run waits", "at least 1 of the members", "yes"):
        assert words in " ".join(found.output.split())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda own: (own / "identity.key").chmod(0o640), "others can read .*chmod 600"),
        (lambda own: (own / "identity.key").write_text("nothing"), "not an Ed25519 private key"),
        (lambda own: (own / "identity.key").unlink(), "dpspectral party init"),
        (lambda own: (own / "members.txt").unlink(), "there is no list of members"),
        (lambda own: (own / "members.txt").write_text("ssh-rsa AAAA\n"), "line 1: not a member's key"),
        (lambda own: (own / "party.ledger").unlink(), "there is no ledger"),
        (lambda own: (own / "ratings.csv").write_text("user,item\n1,zebra\n"), "zebra"),
        (lambda own: (own / "ratings.csv").chmod(0o604), "everybody on this machine can read"),
        (lambda own: edit(own, "[allow]", "[alow]"), "did you mean allow"),
    ],
)
def test_check_names_what_is_wrong(folder, spoil, message):
    spoil(folder)
    for command in (["check"], ["serve", "--dry-run"]):
        found = party(folder, *command)
        assert found.exit_code != 0
        assert re.search(message, " ".join(found.output.split())), found.output
    assert not (folder / "party.sock").exists()


def test_members_are_different_and_one_is_this_party(folder, short):
    lines = (folder / "members.txt").read_text()
    (folder / "members.txt").write_text(lines + lines.splitlines()[1] + "\n")
    with pytest.raises(ValueError, match="this key is there twice"):
        read_members(folder / "members.txt")
    (folder / "members.txt").write_text(make_identity(short / "x", "x"))
    with pytest.raises(SettingsError, match="is the key of none of"):
        Service(Policy.read(folder / "policy.toml"))


def test_keys_of_ssh_keygen_do(short):
    keygen = shutil.which("ssh-keygen")
    if keygen is None:
        pytest.skip("there is no ssh-keygen")
    subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(short / "key")], check=True)
    assert signing_key(read_identity(short / "key")) == read_members(short / "key.pub")[0]


def test_dry_run_makes_no_socket(folder):
    found = party(folder, "serve", "--dry-run")
    assert found.exit_code == 0, found.output
    assert "nothing was served" in found.output
    assert not (folder / "party.sock").exists()


# Runs


def test_a_run_needs_the_members_items_and_numbers_that_the_party_knows(folder):
    edit(folder, "approval = true", "approval = false")
    service = Service(Policy.read(folder / "policy.toml"))
    stranger = read_members(folder / "members.txt")[:2]
    for changes, message in (
        ({"members": (*stranger, bytes(32))}, "members: the server's list"),
        ({"catalogue": bytes(32)}, "items: the server has another list"),
        ({"rounds": 9}, "releases: 9 was asked for"),
        ({"plan": Plan(Budget(6, 1e-6)).encode()}, "epsilon: 6 was asked for"),
    ):
        with pytest.raises(NotAllowedError, match=message):
            service.receive(begin(folder, **changes)[0])
    assert service.receive(begin(folder)[0])[5] == Kind.KEYS
    with pytest.raises(RefusedError):  # once
        service.receive(begin(folder)[0])
    with pytest.raises(RefusedError, match="answered before"):  # also by another process
        Service(Policy.read(folder / "policy.toml")).receive(begin(folder)[0])


def test_a_run_waits_for_approval_and_an_approval_is_for_one_run(folder):
    service = Service(Policy.read(folder / "policy.toml"))
    message, setup = begin(folder)
    name = name_of(setup)[:12]
    with pytest.raises(NotAllowedError, match=f"waits for the party's approval .{name}"):
        service.receive(message)
    told = party(folder, "pending").output
    for words in (name, "at most 4 noisy sums over 3 members", "ε = 2 at δ = 1e-06", "a test"):
        assert words in told
    assert party(folder, "approve", "0" * 12).exit_code != 0
    assert party(folder, "approve", "../../../x").exit_code != 0
    found = party(folder, "approve", name)
    assert found.exit_code == 0, found.output
    assert "at most 4 noisy sums" in found.output
    assert "nothing waits" in party(folder, "pending").output
    again, _ = begin(folder, b"the server tries")  # the same request, as another run
    assert service.receive(again)[5] == Kind.KEYS
    with pytest.raises(NotAllowedError, match="waits for the party's approval"):
        service.receive(begin(folder, b"and once more...")[0])


def test_an_approval_is_of_what_was_shown(folder):
    service = Service(Policy.read(folder / "policy.toml"))
    message, setup = begin(folder)
    with pytest.raises(NotAllowedError):
        service.receive(message)
    Approvals(Policy.read(folder / "policy.toml").approvals).approve(name_of(setup))
    for changes in ({"plan": Plan(Budget(3, 1e-6), "a test").encode()}, {"rounds": 5}, {"collusion": 1, "rounds": 3}):
        with pytest.raises(NotAllowedError, match="waits for the party's approval"):
            service.receive(begin(folder, **changes)[0])
    assert service.receive(message)[5] == Kind.KEYS


def test_names_that_begin_alike_are_told_apart(folder):
    """A server tries 2^24 remarks and has two requests whose names share twelve letters: a modest one, which a person
    approves, and a large one. With names of twelve letters the approval let the large one run."""
    approvals, alike = Approvals(folder / "approvals"), "3f0c61b2a9d4"
    modest, large = alike + "0" * 52, alike + "1" * 52
    with pytest.raises(NotAllowedError):
        approvals.require(modest, "little")
    assert approvals.approve(alike) == "little"
    with pytest.raises(NotAllowedError):
        approvals.require(large, "much")
    approvals.require(modest, "little")
    for name, words in ((modest, "little"), (large, "much")):
        with pytest.raises(NotAllowedError):
            approvals.require(name, words)
    with pytest.raises(ValueError, match="give the whole name"):
        approvals.approve(alike)
    assert approvals.approve(large) == "much"
    assert len(name_of(begin(folder)[1])) == 64


def test_an_approval_that_a_backup_puts_back_is_not_valid_again(folder):
    policy = Policy.read(folder / "policy.toml")
    service = Service(policy)
    message, setup = begin(folder)
    with pytest.raises(NotAllowedError):
        service.receive(message)
    Approvals(policy.approvals).approve(name_of(setup))
    kept = {one: one.read_bytes() for one in policy.approvals.iterdir()}
    assert service.receive(message)[5] == Kind.KEYS
    for file, content in kept.items():
        file.write_bytes(content)
    with pytest.raises(NotAllowedError, match="waits for the party's approval"):
        service.receive(begin(folder, b"another run.....")[0])


def test_what_waits_does_not_fill_the_disk(folder):
    approvals = Approvals(folder / "approvals")
    for number in range(150):
        with pytest.raises(NotAllowedError):
            approvals.require(f"{number:012x}", "words")
    assert len(approvals.waiting()) == 100


def test_the_number_of_runs_in_a_period_is_bounded_from_the_first_message(folder):
    edit(folder, "approval = true", "approval = false")
    service = Service(Policy.read(folder / "policy.toml"))
    for number in range(4):
        service.receive(begin(folder, bytes([number]) * 16)[0])
    with pytest.raises(NotAllowedError, match="runs: 4 were begun within 30 days"):
        service.receive(begin(folder, b"one too many....")[0])


# The socket


def test_the_socket_is_for_its_owner_and_carries_frames(short):
    path = short / "s"
    with SocketServer(path, lambda content: content * 2) as server:
        server.background(0.02)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert ask(path, b"frame") == Reply(b"frameframe")
        large = bytes(5_000_000)
        assert ask(path, large).answer == large * 2
        with pytest.raises(OSError, match="another process already serves"):
            SocketServer(path, len)
        server.shutdown()
    assert not path.exists()


def test_a_group_may_be_let_in(short):
    import grp

    own = grp.getgrgid(os.getgid()).gr_name
    with SocketServer(short / "s", lambda content: content, own):
        assert stat.S_IMODE((short / "s").stat().st_mode) == 0o660
    with pytest.raises(OSError, match="there is no group"):
        SocketServer(short / "t", lambda content: content, "nobody knows this group")
    assert not (short / "t").exists()


def test_only_the_policy_gives_reasons(caplog):
    def not_allowed(_):
        raise NotAllowedError("epsilon: too much")

    def broken(_):
        raise ZeroDivisionError("17 rows")

    assert answered(not_allowed, b"") == Reply(None, "epsilon: too much")
    assert answered(broken, b"") == Reply(None, "")
    assert "17 rows" in caplog.text


def test_requests_that_are_none_do_not_end_the_server(short, caplog):
    with SocketServer(short / "s", lambda content: content) as server:
        server.background(0.02)
        for wrong in (b"", b"abc", headed(b"frame")[:-1], b"\xff" * 8 + b"x"):
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(str(short / "s"))
                line.sendall(wrong)
        assert ask(short / "s", b"frame") == Reply(b"frame")
        server.shutdown()
    with pytest.raises(OSError, match="is too long for a socket"):
        SocketServer(short / ("x" * 120), len)
    (short / "file").write_text("")
    with pytest.raises(OSError, match="is not a socket"):
        SocketServer(short / "file", len)


def test_no_frame_is_longer_than_what_the_policy_allows(folder, short, caplog):
    """The largest question there can be is read; of one byte more, nothing is."""
    service = Service(Policy.read(folder / "policy.toml"))
    n, columns = service._party.n, service.policy.columns
    X = Iterate(np.full((n, min(n, columns)), 2.0**12), 30)  # 8 bytes for each number
    asked = Product(service.policy.unit.with_floor(5), X, noise_shares=1)
    question = Question("x" * 200, asked, 1.0, PLANNED, begin(folder)[1], 9, np.arange(n)).encode()
    frame = Frame(Kind.ASK, bytes(16), 0, 0, bytes(1) + question).encode()
    assert service.largest - (1 << 15) < len(frame) <= service.largest
    with SocketServer(short / "s", lambda content: content[:1], largest=service.largest) as server:
        server.background(0.02)
        assert ask(short / "s", bytes(service.largest)) == Reply(b"\0")
        with pytest.raises(OSError):
            ask(short / "s", bytes(service.largest + 1))
        server.shutdown()
    assert "the largest has" in caplog.text


def test_a_socket_that_a_killed_process_left_is_replaced(short):
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(short / "s"))
    with SocketServer(short / "s", lambda content: content):
        assert (short / "s").exists()


def test_few_requests_are_in_memory_at_a_time(short):
    """A hostile app opens many connections and sends long frames: eight are read, the others wait."""
    inside, most, lock = [], [], threading.Lock()

    def slow(content):
        with lock:
            inside.append(content)
            most.append(len(inside))
        time.sleep(0.05)
        with lock:
            inside.pop()
        return b"done"

    with SocketServer(short / "s", slow) as server:
        server.background(0.02)
        with ThreadPoolExecutor(20) as pool:
            replies = list(pool.map(lambda _: ask(short / "s", b"frame"), range(20)))
        server.shutdown()
    assert replies == [Reply(b"done")] * 20
    assert max(most) <= 8


@pytest.mark.slow
def test_serve_as_a_process(folder):
    """Started, asked, ended by SIGTERM: the socket is gone, the log says what happened and shows no secret."""
    edit(folder, "approval = true", "approval = false")
    command = [sys.executable, "-m", "dpspectral.cli", "party", "serve", "--policy", str(folder / "policy.toml")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(600):
            if (folder / "party.sock").exists():
                break
            time.sleep(0.1)
        reply = ask(folder / "party.sock", begin(folder)[0])
        assert reply.answer is not None
        assert reply.answer[5] == Kind.KEYS
        assert ask(folder / "party.sock", begin(folder, b"another run.....", rounds=9)[0]).reason.startswith(
            "releases: 9 was asked for"
        )
        process.terminate()
        log = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    assert process.returncode == 0
    assert not (folder / "party.sock").exists()
    assert "begins: at most 4 noisy sums over 3 members" in log
    assert read_identity(folder / "identity.key").hex() not in log


def test_a_log_shows_no_secret(folder, caplog):
    edit(folder, "approval = true", "approval = false")
    service = Service(Policy.read(folder / "policy.toml"))
    with caplog.at_level(logging.DEBUG, logger="dpspectral.party"):
        service.receive(begin(folder)[0])
    (client,) = service._clients.values()
    own = [client.memory.envelope, client.memory.nonce, read_identity(folder / "identity.key")]
    own += [secret for one in client.memory.secrets.values() for secret in (one.mask_key, one.self_mask)]
    assert "begins" in caplog.text
    assert not any(secret.hex()[:16] in caplog.text + repr(service) for secret in own)
    assert Ledger.open(folder / "party.ledger").entries == ()


# Backups


def test_with_an_anchor_the_markers_lie_beside_it(short):
    own, elsewhere = short / "party", short / "elsewhere"
    elsewhere.mkdir()
    given = ["--name", "us", "--epsilon", "5", "--delta", "1e-6", "--anchor", str(elsewhere / "us.anchor")]
    assert CliRunner().invoke(main, ["party", "init", str(own), *given]).exit_code == 0
    assert Policy.read(own / "policy.toml").markers == elsewhere.resolve() / "us.anchor.rounds"


def test_a_party_whose_folder_was_put_back_goes_on_with_nothing(folder, short):
    """Its ledger, its markers and what it keeps of runs, all of an hour ago: the run that it had begun is gone."""
    edit(folder, "approval = true", "approval = false")
    edit(folder, '# state = "/run/dpspectral/state"', 'state = "state"')
    policy = Policy.read(folder / "policy.toml")
    service = Service(policy)
    message, setup = begin(folder)
    shutil.copytree(policy.markers, short / "old")
    service.receive(message)
    assert list(Service(policy)._clients) == [setup.run]  # a restart
    shutil.rmtree(policy.markers)
    shutil.copytree(short / "old", policy.markers)
    assert not Service(policy)._clients
    assert not list(policy.state.iterdir())


def test_a_ledger_that_was_put_back_is_refused_until_what_was_spent_is_recorded(folder, short):
    file = folder / "party.ledger"
    file.unlink()
    Ledger.create(file, Budget(5, 1e-6), anchor=short / "anchor")
    policy, kept = Policy.read(folder / "policy.toml"), file.read_bytes()
    Ledger.open(file).charge(Release("a sum", UNIT.relation, 1.0, 1.0, 1.0, True))
    file.write_bytes(kept)
    for command in (["check"], ["serve", "--dry-run"]):
        found = party(folder, *command)
        assert found.exit_code != 0
        assert "restored from a backup" in " ".join(found.output.split())
    found = CliRunner().invoke(main, ["ledger", "record", str(file)])
    assert found.exit_code == 0, found.output
    assert policy.open_ledger().mu >= 1.0
    assert party(folder, "check").exit_code == 0


# Keys and versions


def test_a_member_gets_a_new_key_and_the_old_one_is_worth_nothing(folder, short):
    """The line in everybody's list is replaced and processes restarted: runs of the old list are refused, by name."""
    edit(folder, "approval = true", "approval = false")
    old, _ = begin(folder)
    lines = (folder / "members.txt").read_text().splitlines()
    lines[-1] = make_identity(short / "fresh", "other1")
    (folder / "members.txt").write_text("\n".join(lines) + "\n")
    service = Service(Policy.read(folder / "policy.toml"))
    with pytest.raises(NotAllowedError, match="members: the server's list of members is not the one"):
        service.receive(old)
    new, _ = begin(folder)
    assert service.receive(new)[5] == Kind.KEYS
    (folder / "members.txt").write_text("\n".join(lines[:-1]) + "\n")  # a member is removed
    with pytest.raises(NotAllowedError, match="members: the server's list"):
        Service(Policy.read(folder / "policy.toml")).receive(new)


def test_this_partys_own_new_key_must_be_in_the_list(folder, short):
    make_identity(short / "fresh", "us")
    shutil.copy(short / "fresh", folder / "identity.key")
    found = party(folder, "check")
    assert found.exit_code != 0
    assert "is the key of none of" in " ".join(found.output.split())


def test_another_version_is_refused_by_name(folder):
    """Older and newer ones, before anything is begun, and the server is told which."""
    edit(folder, "approval = true", "approval = false")
    service = Service(Policy.read(folder / "policy.toml"))
    message, _ = begin(folder)
    for version in (VERSION - 1, VERSION + 1):
        other = bytearray(message[:-16])
        other[4] = version
        whole = bytes(other) + digest(bytes(other))[:16]
        reply = answered(service.receive, whole)
        assert reply.answer is None
        assert reply.reason == f"version: a message of version {version}; this is version {VERSION}"
    assert not list(service.policy.markers.iterdir())
    assert service.receive(message)[5] == Kind.KEYS


# Operators


def test_metrics_count_messages_and_tell_no_times(folder):
    prometheus = pytest.importorskip("prometheus_client", reason="needs the extra dpspectral[metrics]")
    edit(folder, "approval = true", "approval = false")
    service = Service(Policy.read(folder / "policy.toml"))
    metrics = Metrics(service)
    receive = metrics.watch(service.receive)
    receive(begin(folder)[0])
    for wrong in (b"", begin(folder, b"another run.....", rounds=9)[0]):
        with pytest.raises(ValueError):
            receive(wrong)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    close = metrics.serve(port)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            told = page.read().decode()
    finally:
        close()
    assert told == prometheus.generate_latest(metrics.registry).decode()
    figures = dict(line.rsplit(" ", 1) for line in told.splitlines() if not line.startswith("#"))
    assert figures['dpspectral_party_answers_total{stage="begin"}'] == "1.0"
    assert figures['dpspectral_party_refusals_total{by="policy"}'] == "1.0"
    assert figures['dpspectral_party_refusals_total{by="protocol"}'] == "1.0"
    assert figures["dpspectral_party_runs"] == "1.0"
    assert float(figures["dpspectral_party_ledger_mu_spent"]) == 0
    assert float(figures["dpspectral_party_ledger_mu_total"]) == pytest.approx(Budget(5, 1e-6).mu)
    assert not [name for name in figures if "seconds" in name or "process" in name]


def test_metrics_without_the_extra_name_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    found = party(folder, "serve", "--metrics", "9999")
    assert found.exit_code != 0
    assert "dpspectral[metrics]" in found.output


def test_health_is_whether_a_process_answers(folder):
    assert party(folder, "health").exit_code != 0
    service = Service(Policy.read(folder / "policy.toml"))
    with SocketServer(folder / "party.sock", service.receive) as server:
        server.background(0.02)
        found = party(folder, "health")
        server.shutdown()
    assert found.exit_code == 0
    assert "a party answers" in found.output


def test_a_log_of_json_has_one_object_for_each_line():
    record = logging.LogRecord(
        "dpspectral.party", logging.INFO, "", 0, "no answer: %s", ('a "text"\nof two lines',), None
    )
    told = json.loads(JsonLines().format(record))
    assert told["message"] == 'no answer: a "text"\nof two lines'
    assert "\n" not in JsonLines().format(record)


def test_logs_show_no_control_characters_and_have_fields(folder):
    """What a server sends may come back in a reason: an unknown name of a unit's argument, say."""
    wrong = "a\x1b[2J\x9b2J\u202eb\r\n\N{GREEK SMALL LETTER MU}"
    record = logging.LogRecord("dpspectral.party", logging.WARNING, "", 0, "no answer: %s", (wrong,), None)
    record.fields = {"run": "00ff", "round": 2}
    for line in (PlainLines("%(message)s").format(record), JsonLines().format(record)):
        assert line.isprintable()
        assert "\N{GREEK SMALL LETTER MU}" in line
    told = json.loads(JsonLines().format(record))
    assert (told["message"], told["run"], told["round"]) == (f"no answer: {wrong}", "00ff", 2)
