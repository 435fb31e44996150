"""SuperLink and six SuperNodes as processes on loopback, with TLS and node authentication: one private basis.

    python tests/deployment/flower_tls.py [--parties 6] [--folder FOLDER]

Needs `pip install 'dpspectral[flower]'`. Makes a certificate authority, keys, data, a policy and a ledger for each
party, starts everything, runs the packaged app, and checks: with the same injected noise the basis is that of the
in-process run, bit for bit; a node with a key that was not registered is refused; ledgers hold what was released. Each
party has a process of its own. As root each has an account of its own, too, and the nodes another one; then a hostile
ClientApp is submitted, as whoever reaches the SuperLink can: it tries all files, processes and sockets of all parties.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import grp
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import flwr
import numpy as np
import scipy.sparse as sp
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import dpspectral
from dpspectral import Budget, Interaction, Ledger, NotPrivate, Party, PowerOptions, Result, SecureSum, decompose
from dpspectral.data.synthetic import tastes
from dpspectral.deploy.party.identity import make_identity

BIN, APPS = Path(sys.executable).parent, Path(__file__).parent / "apps"
ENVIRONMENT = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
ACCOUNT = 61_000  # of the first party


def others_can(option: str, file: str | Path) -> bool:
    return not subprocess.call(["test", option, os.path.realpath(file)], user=ACCOUNT, group=ACCOUNT, extra_groups=[])


# Whether processes can be started under other accounts: as root, where others can read this package and Flower.
ACCOUNTS = os.getuid() == 0 and all(others_can("-r", str(one.__file__)) for one in (dpspectral, flwr))
NODES = grp.getgrnam("nogroup") if ACCOUNTS else grp.getgrgid(os.getgid())
NODE = ACCOUNT - 1  # of all nodes
GROUP = f'socket_group = "{NODES.gr_name}"\n' if ACCOUNTS else ""
UNIT, BUDGET, RANK, ITEMS, SEED = Interaction(20), Budget(5.0, 1e-8), 8, 150, 7


def commands(folder: Path) -> Path:
    """Where the commands lie. A Python that only its owner may run is copied, without its packages, for everybody."""
    if not ACCOUNTS or others_can("-x", sys.executable):
        return BIN
    place, library = folder / "python", Path(sysconfig.get_path("stdlib"))
    left_out = shutil.ignore_patterns("site-packages", "test", "__pycache__", "idlelib", "config-*")
    shutil.copytree(library, place / "lib" / library.name, ignore=left_out)
    for shared in Path(sysconfig.get_config_var("LIBDIR")).glob("libpython*"):
        shutil.copy(shared, place / "lib")
    (place / "bin").mkdir()
    python = Path(shutil.copy(os.path.realpath(sys.executable), place / "bin" / "python"))
    packages = place / "lib" / library.name / "site-packages"
    packages.mkdir()
    (packages / "all.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    for script in BIN.iterdir():
        if script.is_file() and (text := script.read_bytes()).startswith(b"#!"):
            (place / "bin" / script.name).write_bytes(f"#!{python}\n".encode() + text.split(b"\n", 1)[1])
            (place / "bin" / script.name).chmod(0o755)
    os.environ["LD_LIBRARY_PATH"] = str(place / "lib")
    return place / "bin"


def certificates(folder: Path) -> None:
    """An authority and a certificate for 127.0.0.1."""
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def base(subject: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        made = x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name("test authority"))
        made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return made.not_valid_before(now - day).not_valid_after(now + day)

    own = base("test authority", authority).add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
    leaf = base("localhost", server).add_extension(x509.SubjectAlternativeName(names), False)
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(own.sign(authority, hashes.SHA256()).public_bytes(pem))
    (folder / "server.crt").write_bytes(leaf.sign(authority, hashes.SHA256()).public_bytes(pem))
    plain = serialization.NoEncryption()
    (folder / "server.key").write_bytes(server.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


def node_key(folder: Path, number: int) -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    coded = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    (folder / f"node{number}.key").write_bytes(key.private_bytes(*coded))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"node{number}.pub").write_bytes(public + b"\n")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def party_files(folder: Path, R: sp.csr_array, parties: int, room: float = 1) -> None:
    """Rows, policy and ledger (with room for some runs) of each party; the lists of items and members for all."""
    lines = []
    (folder / "items.txt").write_text("\n".join(map(str, range(ITEMS))) + "\n")
    edges = np.linspace(0, R.shape[0], parties + 1).astype(int)
    for party in range(parties):
        own = folder / f"party{party}"
        own.mkdir()
        pairs = R[edges[party] : edges[party + 1]].tocoo()
        records = ["user,item", *(f"{u},{i}" for u, i in zip(pairs.row, pairs.col, strict=True))]
        (own / "rows.csv").write_text("\n".join(records) + "\n")
        (own / "rows.csv").chmod(0o600)
        lines.append(make_identity(own / "identity.key", f"party{party}"))
        Ledger.create(own / "party.ledger", Budget(BUDGET.epsilon * room, BUDGET.delta))
        (own / "policy.toml").write_text(
            f'data = "rows.csv"\nitems = "{folder / "items.txt"}"\nledger = "party.ledger"\n'
            f'members = "{folder / "members.txt"}"\nsocket = "{folder / f"{party}.sock"}"\n{GROUP}[allow]\n'
            f'unit = "interaction"\nfloor = 20\nepsilon = 5.0\ndelta = 1e-8\nreleases = 8\n'
            f"not_private_seed = {SEED}\n"
        )
    (folder / "members.txt").write_text("\n".join(lines) + "\n")
    if ACCOUNTS:
        for party in range(parties):
            own = folder / f"party{party}"
            for place in (own, *own.iterdir()):
                os.chown(place, ACCOUNT + party, ACCOUNT + party)
            own.chmod(0o700)
        folder.chmod(0o1777)  # every party makes its socket here


class Deployment:
    """Processes on loopback."""

    def __init__(self, folder: Path, parties: int) -> None:
        self.folder, self.parties, self.port = folder, parties, free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.parties_processes: dict[int, subprocess.Popen[bytes]] = {}
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        self.commands = commands(folder)
        path = f"{self.commands}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, **ENVIRONMENT, "FLWR_HOME": str(folder / "flwr"), "PATH": path}
        certificates(folder)
        for number in range(parties + 1):  # the last one is not registered
            node_key(folder, number)
        for home in ("flwr", "node"):
            (folder / home).mkdir(exist_ok=True)
        for place in (folder / "node", *folder.glob("node*.key")) if ACCOUNTS else ():
            os.chown(place, NODE, NODES.gr_gid)
        (folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "test"\n[superlink.test]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{folder / "ca.crt"}"\n'
        )

    def start(self, name: str, home: Path, *command: str, **account: object) -> subprocess.Popen[bytes]:
        environment = {**self.environment, "HOME": str(home), "FLWR_HOME": str(home)}
        with (self.folder / f"{name}.log").open("ab") as log:
            found = subprocess.Popen(
                [str(self.commands / command[0]), *command[1:]], stdout=log, stderr=subprocess.STDOUT, cwd="/",
                env=environment, start_new_session=True, **account,  # type: ignore[call-overload]
            )  # fmt: skip
        self.processes.append(found)
        return found

    def answers(self, number: int) -> bool:
        with socket.socket(socket.AF_UNIX) as line:
            return not line.connect_ex(str(self.folder / f"{number}.sock"))

    def party(self, number: int) -> subprocess.Popen[bytes]:
        """The party's own process, under its own account; the group of nodes may connect to its socket."""
        own, home = ACCOUNT + number, self.folder / f"party{number}"
        policy = str(home / "policy.toml")
        account = {"user": own, "group": own, "extra_groups": [NODES.gr_gid]} if ACCOUNTS else {}
        found = self.start(f"party{number}", home, "dpspectral", "party", "serve", "--policy", policy, **account)
        self.parties_processes[number] = found
        for _ in range(600):
            if (self.folder / f"{number}.sock").is_socket() and found.poll() is None and self.answers(number):
                return found
            time.sleep(0.1)
        raise AssertionError((self.folder / f"party{number}.log").read_text())

    def superlink(self) -> None:
        self.superlink_process = self.start(
            "superlink", self.folder / "flwr", "flower-superlink", "--ssl-ca-certfile", str(self.folder / "ca.crt"),
            "--ssl-certfile", str(self.folder / "server.crt"), "--ssl-keyfile", str(self.folder / "server.key"),
            "--enable-supernode-auth", "--disable-runtime-dependency-installation", "--port", str(self.port),
        )  # fmt: skip
        self.wait_until_open()

    def wait_until_open(self) -> None:
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.2)
        raise AssertionError("the SuperLink did not start")

    def flwr(self, *arguments: str, check: bool = True) -> str:
        found = subprocess.run(
            [str(self.commands / "flwr"), *arguments], env=self.environment, capture_output=True, text=True, timeout=600
        )
        if check and found.returncode:
            raise AssertionError(found.stdout + found.stderr)
        return found.stdout + found.stderr

    def supernode(self, number: int, key: int | None = None) -> subprocess.Popen[bytes]:
        account = {"user": NODE, "group": NODES.gr_gid, "extra_groups": []} if ACCOUNTS else {}
        found = self.start(
            f"node{number if key is None else 'x'}", self.folder / "node", "flower-supernode", "--root-certificates",
            str(self.folder / "ca.crt"), "--superlink", f"127.0.0.1:{self.port}", "--auth-supernode-private-key",
            str(self.folder / f"node{number if key is None else key}.key"), "--node-config",
            f'socket="{self.folder / f"{number}.sock"}"',
            "--port", str(free_port()), "--max-retries", "3", **account,
        )  # fmt: skip
        self.nodes |= {number: found} if key is None else {}
        return found

    def restart_server(self) -> None:
        """After its SuperLink was killed: it has forgotten all nodes."""
        for node in self.nodes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(node.pid, signal.SIGKILL)
        self.superlink()
        for number in range(self.parties):
            self.flwr("supernode", "register", str(self.folder / f"node{number}.pub"), "test")
            self.supernode(number)

    def stop(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def deployed(folder: Path, parties: int) -> Iterator[Deployment]:
    found = Deployment(folder, parties)
    try:
        found.superlink()
        for number in range(parties):
            found.party(number)
            found.flwr("supernode", "register", str(folder / f"node{number}.pub"), "test")
            found.supernode(number)
        yield found
    finally:
        found.stop()


def app(folder: Path, **more: object) -> Path:
    """The packaged app: a pyproject.toml that points at our ServerApp and ClientApp."""
    config = {
        "items": str(folder / "items.txt"), "unit": "interaction", "floor": 20, "rank": RANK, "epsilon": 5.0,
        "delta": 1e-8, "members": str(folder / "members.txt"), "collusion": 1, "drop-tolerance": 1,
        "users": 100_000, "patience": 120.0,
        "out": str(folder / "basis.npz"), "random-state": 0, "catalogue": "none", "iterations": 2,
        "oversampling": 8, **more,
    }  # fmt: skip
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in config.items())
    place = folder / "app"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "pyproject.toml").write_text(
        '[project]\nname = "basis"\nversion = "1.0.0"\ndescription = "a private basis"\nlicense = "Apache-2.0"\n'
        'dependencies = []\n[tool.hatch.build.targets.wheel]\npackages = ["."]\n'
        '[tool.flwr.app]\npublisher = "dpspectral"\n[tool.flwr.app.components]\n'
        'serverapp = "dpspectral.deploy.flower.server_app:app"\nclientapp = "dpspectral.deploy.flower.client_app:app"\n'
        f"[tool.flwr.app.config]\n{lines}\n"
    )
    return place


def hostile(network: Deployment) -> list[dict[str, int]]:
    """What a hostile app found on each node."""
    pids, found = (process.pid for process in network.parties_processes.values()), network.folder / "found.json"
    place = app(network.folder, place=str(network.folder), pids=" ".join(map(str, pids)), found=str(found))
    shutil.copy(APPS / "hostile.py", place)
    config = (place / "pyproject.toml").read_text()
    for ours, theirs in (("server_app:app", "server"), ("client_app:app", "client")):
        config = config.replace(f"dpspectral.deploy.flower.{ours}", f"hostile:{theirs}")
    (place / "pyproject.toml").write_text(config)
    text = network.flwr("run", str(place), "test", "--stream")
    assert found.exists(), text
    seen: list[dict[str, int]] = json.loads(found.read_text())
    return seen


class Seeded(Party):
    """A party in this process with the noise that nodes draw from `not-private-seed`."""

    def __init__(self, rows: sp.csr_array, number: int) -> None:
        super().__init__(rows, UNIT, noise=NotPrivate(0))
        self.number, self.asked = number, 0

    def answer(self, question, setup):  # type: ignore[no-untyped-def]
        self.noise = NotPrivate(SEED + 1000 * self.asked + self.number)
        self.asked += 1
        return super().answer(question, setup)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parties", type=int, default=6)
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    folder = (chosen.folder or Path(tempfile.mkdtemp(prefix="flower-"))).resolve()
    folder.mkdir(exist_ok=True)
    R = sp.csr_array(tastes(users=900, items=ITEMS))
    party_files(folder, R, chosen.parties)
    start = time.perf_counter()
    with deployed(folder, chosen.parties) as network:
        network.supernode(0, key=chosen.parties)  # not registered
        place = app(folder)
        print(network.flwr("run", str(place), "test", "--stream")[-3000:])
        assert (folder / "basis.npz").exists(), f"no result; logs in {folder}"
        print(f"{time.perf_counter() - start:.0f} s")
        refused = (folder / "nodex.log").read_text()
        seen = hostile(network) if ACCOUNTS else []
    found = Result.load(folder / "basis.npz").components
    expected = in_process(R, chosen.parties)
    print("bit for bit the in-process basis:", np.array_equal(found, expected))
    print("the node without a registered key was refused:", "Failed to activate SuperNode" in refused)
    entries = [len(Ledger.open(folder / f"party{k}" / "party.ledger").entries) for k in range(chosen.parties)]
    print("entries in the parties' ledgers:", entries)
    assert np.array_equal(found, expected)
    assert entries == [2] * chosen.parties
    assert "Failed to activate SuperNode" in refused
    print("each party under an account of its own, the nodes under another one:", ACCOUNTS)
    if ACCOUNTS:
        assert [one["account"] for one in seen] == [NODE] * chosen.parties, seen
        got = sum(one["files"] + one["processes"] + one["answers"] for one in seen)
        print("what a hostile ClientApp could read, stop or get:", got)
        assert got == 0, seen
    if chosen.folder is None:
        shutil.rmtree(folder)


def in_process(R: sp.csr_array, parties: int) -> np.ndarray:
    edges = np.linspace(0, R.shape[0], parties + 1).astype(int)
    holders = [Seeded(R[edges[k] : edges[k + 1]], k) for k in range(parties)]
    source = SecureSum(holders, collusion=1, drop_tolerance=1, max_users=100_000)
    return decompose(
        source,
        RANK,
        unit=UNIT,
        budget=BUDGET,
        random_state=0,
        catalogue=None,
        power=PowerOptions(iterations=2, oversampling=8),
    ).components


if __name__ == "__main__":
    main()
