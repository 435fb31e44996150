"""How a file is read can be said wherever one is named: in a policy, in a run of Flower, in a peer's file."""

import pytest

pytest.importorskip("flwr")
pytest.importorskip("zmq")

from dpspectral import Budget, Ledger
from dpspectral.cli.basis import FitOptions
from dpspectral.cli.federate import _flower
from dpspectral.data import reading
from dpspectral.data.datasets import load
from dpspectral.deploy.party.policy import Policy
from dpspectral.deploy.settings import SettingsError
from dpspectral.deploy.zeromq.config import Config
from dpspectral.deploy.zeromq.run import load_party

POLICY = """
data = "rows.txt"
items = "items.txt"
ledger = "party.ledger"
{options}
[allow]
unit = "interaction"
floor = 2
epsilon = 2.0
delta = 1e-6
"""
PEER = (
    'name = "1"\ndata = "rows.txt"\nitems = "items.txt"\nledger = "party.ledger"\nkey = "k"\nout = "o.npz"\n'
    '[run]\nunit = "interaction"\nrank = 1\nusers = 9\nepsilon = 1.0\ndelta = 1e-6\nfloor = 2\ndegree = 2\n{options}\n'
    + "".join(f'[[peers]]\nname = "{n}"\naddress = "tcp://h:{n}"\nkey = "{n * 40}"\n' for n in "123")
)
LISTS = 'format = "lists"\ndelimiter = "comma"'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "items.txt").write_text("a\nb\nc\n")
    (tmp_path / "rows.txt").write_text("1,a,b\n2,c\n3,a,b,c\n")
    Ledger.create(tmp_path / "party.ledger", Budget(3, 1e-6))
    return tmp_path


def test_a_policy_says_how_its_file_is_read(folder):
    file = folder / "policy.toml"
    file.write_text(POLICY.format(options=LISTS))
    assert Policy.read(file).rows().shape == (3, 3)
    file.write_text(POLICY.format(options=""))
    with pytest.raises(ValueError, match="separated by blanks"):
        Policy.read(file).rows()


def test_a_peers_file_says_so_for_everybody(folder):
    file = folder / "me.toml"
    file.write_text(PEER.format(options=LISTS))
    found = Config.read(file)
    assert load_party(found).users == 3
    file.write_text(PEER.format(options=""))
    other = Config.read(file)
    assert other.agreement("") != found.agreement("")
    with pytest.raises(ValueError, match="separated by blanks"):
        load_party(other)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ('format = "triples"', "format must be one of"),
        ("format = 3", "format must be one of"),
        ('delimiter = "!"', "delimiter must be one of"),
        ('header = "yes"', "header must be True or False"),
        ('min_rating = "high"', "min_rating must be a number"),
        ('separator = ","', "does not know separator"),
    ],
)
def test_wrong_options_are_said_when_the_file_is_read(folder, options, says):
    file = folder / "file.toml"
    for text, read in ((POLICY, Policy.read), (PEER, Config.read)):
        file.write_text(text.format(options=options))
        with pytest.raises(SettingsError, match=says):
            read(file)


def test_a_simulation_of_flower_is_told_what_the_command_was(folder, monkeypatch):
    """What `federate` writes into the run's settings is what nodes read their part with."""
    settings = {}

    def simulate(config, _folder):
        settings.update(config)
        raise InterruptedError

    monkeypatch.setattr("dpspectral.deploy.flower.simulate.simulate", simulate)
    how = {"header": False, "format": "lists", "delimiter": "comma"}
    rest = dict.fromkeys(FitOptions.__dataclass_fields__)
    asked = FitOptions(
        **{
            **rest,
            "reading": how,
            "kind": "interaction",
            "epsilon": 1.0,
            "delta": 1e-6,
            "catalogue": "none",
            "items": str(folder / "items.txt"),
        }
    )
    table = load(folder / "rows.txt", items=str(folder / "items.txt"), **how)
    with pytest.raises(InterruptedError):
        _flower(asked, folder / "rows.txt", table, 3, 1, 0, False)
    assert reading.options(settings, mark="-") == how
    found = load(settings["data"], items=str(folder / "items.txt"), **reading.options(settings, mark="-"))
    assert (found.matrix.toarray() == table.matrix.toarray()).all()


def test_a_party_reads_the_list_that_all_compare(tmp_path):
    """Its own name for the column of items does not choose another column of the shared list."""
    from dpspectral.data.datasets import load_rows
    from dpspectral.data.tables import read_catalogue
    from dpspectral.protocols.common.catalogue_digest import catalogue_digest

    items, data = tmp_path / "items.csv", tmp_path / "rows.csv"
    items.write_text("name,sku\nx,a\ny,b\n")
    data.write_text("who,name\nann,b\nbob,a\n")
    rows = load_rows(data, str(items), user="who", item="name")
    assert rows.toarray().tolist() == [[False, True], [True, False]]
    shared = tmp_path / "shared.txt"
    shared.write_text("\n".join(read_catalogue(str(items))))
    assert catalogue_digest(items) == catalogue_digest(shared)
