"""A party's policy file: read strictly, and held against every question whatever the server says."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from dpspectral import BoundedRows, Budget, Interaction, Ledger, User
from dpspectral.deploy.party import policy_party
from dpspectral.deploy.party.plan import NotAllowedError, Plan, in_words
from dpspectral.deploy.party.policy import Policy
from dpspectral.deploy.party.policy_party import PolicyParty
from dpspectral.deploy.settings import SettingsError
from dpspectral.privacy.iterate import Iterate
from dpspectral.protocols.common.catalogue_digest import catalogue_digest
from dpspectral.protocols.common.question import Question
from dpspectral.protocols.secure_sum.memory import Answered
from dpspectral.protocols.secure_sum.setup import Setup
from dpspectral.release.queries import Popularity, Product

TEXT = """
data = "rows.csv"
items = "items.txt"
ledger = "party.ledger"
[allow]
unit = "interaction"
floor = 5
epsilon = 2.0
delta = 1e-6
collusion = 2
releases = 4
columns = 6
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "items.txt").write_text("a\nb\nc\n")
    (tmp_path / "rows.csv").write_text("user,item\n1,a\n1,b\n2,c\n3,a\n3,b\n3,c\n")
    (tmp_path / "policy.toml").write_text(TEXT)
    return tmp_path / "policy.toml"


def test_a_policy_gives_a_party_with_rows_and_ledger(file):
    Ledger.create(file.parent / "party.ledger", Budget(3, 1e-6))
    policy = Policy.read(file)
    assert policy.unit == Interaction(5)
    party = party_of(file)
    assert (party.n, party.users) == (3, 3)
    assert party.ledger.budget == Budget(3, 1e-6)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('data = "rows.csv"\n', "", "data is missing"),
        ('data = "rows.csv"', "data = 3", 'data must be text in quotes, data = "...", got 3'),
        ("[allow]", "[alow]", "does not know alow; did you mean allow"),
        ("epsilon = 2.0\n", "", r"\[allow\] epsilon is missing"),
        ("columns = 6", "columns = 6\nnot_private_seed = 0.5", "not_private_seed must be a whole number"),
        ("epsilon = 2.0", "epsilon = -1", "epsilon must be"),
        ("floor = 5", "flor = 5", r"\[allow\] does not know flor; did you mean floor"),
        ('items = "items.txt"', 'items = "items.txt"\ntable = 1', "does not know table"),
        ("floor = 5", "floor = ", "policy.toml"),
        ('"interaction"', '"everybody"', "unit must be"),
        ("collusion = 2", "collusion = 0", "collusion must be"),
        ("collusion = 2", "collusion = 1.5", "collusion must be"),
        ("columns = 6", "columns = 6\nparties = 3", "does not know parties"),
        ("columns = 6", 'columns = 6\nqueries = ["products"]', "queries must be some of"),
        ("columns = 6", "columns = 6\napproval = 1", "approval must be"),
        ("columns = 6", "columns = 6\n[period]\nruns = 3", r"\[period\] days is missing"),
        ("columns = 6", "columns = 6\n[period]\ndays = -3", "days must be"),
        ("columns = 6", "columns = 6\n[period]\ndays = 3\nruns = 0", "runs must be"),
        ('unit = "interaction"\nfloor = 5', 'unit = "rows"', "norm is missing"),
    ],
)
def test_wrong_policies_say_what_is_wrong(file, old, new, message):
    assert old in TEXT
    file.write_text(TEXT.replace(old, new))
    with pytest.raises(SettingsError, match=message):
        Policy.read(file)


def test_units_by_name(file):
    for old, new, unit in [
        ("floor = 5", "floor = 5\nneighbours = 'replace'", Interaction(5, neighbours="replace")),
        ("floor = 5", "", Interaction()),
        ('unit = "interaction"', 'unit = "user"', User(5)),
        ('unit = "interaction"\nfloor = 5', 'unit = "rows"\nrow_norm = 2.0', BoundedRows(2.0)),
    ]:
        file.write_text(TEXT.replace(old, new))
        assert Policy.read(file).unit == unit


def test_a_missing_ledger_and_unknown_items_are_said(file):
    with pytest.raises(SettingsError, match="dpspectral ledger create"):
        Policy.read(file).open_ledger()
    Ledger.create(file.parent / "party.ledger", Budget(3, 1e-6))
    (file.parent / "rows.csv").write_text("user,item\n1,a\n1,zebra\n")
    with pytest.raises(ValueError, match="zebra"):
        Policy.read(file).rows()


def test_the_catalogues_digest_is_about_names_and_order(tmp_path):
    texts = {"one": "a\nb\n", "same": "a\n\nb", "other": "b\na\n", "longer": "a\nb\nc\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = {name: catalogue_digest(tmp_path / name) for name in texts}
    assert found["one"] == found["same"]
    assert len(set(found.values())) == 3


SETUP = {"parties": 6, "collusion": 2, "drop_tolerance": 0, "rounds": 4}


BUDGET, UNIT = Budget(2, 1e-6), Interaction(5)


def run_of(name=bytes(16), plan=BUDGET, **changes):
    numbers = {**SETUP, **changes}
    members = tuple(bytes([k]) * 32 for k in range(numbers["parties"]))
    return Setup(run=name, members=members, plan=Plan(plan, "a test").encode(), **numbers)


def party_of(file):
    policy = Policy.read(file)
    return PolicyParty(policy.rows(), policy, policy.open_ledger())


def question(setup=None, mu=0.2, budget=BUDGET, unit=UNIT, columns=None, n=3, plan=None):
    made = run_of(plan=plan or budget, **(setup or {}))
    query = Popularity(unit, n, noise_shares=made.noise_shares)
    if columns is not None:
        query = Product(unit, Iterate(np.full((n, columns), 0.3)), 0.01, noise_shares=made.noise_shares)
    return Question("something", query, mu, budget, made, 100), made


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan": Budget(1, 1e-6)}, "another budget than the run's plan"),
        ({"n": 3, "columns": 5, "unit": Interaction(4)}, "unit or items: .*this party protects"),
        ({"setup": {"collusion": 1}}, "collusion: 1 was asked for, the policy allows at least 2"),
        ({"setup": {"rounds": 5}}, "releases: 5 was asked for, the policy allows at most 4"),
        ({"budget": Budget(2.5, 1e-6)}, "epsilon: 2.5 was asked for, the policy allows at most 2"),
        ({"budget": Budget(2, 1e-5)}, "delta: 1e-05 was asked for, the policy allows at most 1e-06"),
        ({"mu": 1.0}, "mu: 1 was asked for"),
        ({"columns": 7}, "columns: 7 was asked for, the policy allows at most 6"),
        ({"unit": Interaction(4)}, "unit or items: .*this party protects"),
        ({"n": 4}, "unit or items: asked about 4 items"),
    ],
)
def test_questions_outside_the_policy_are_refused_before_anything_is_computed(file, changes, message):
    ledger = Ledger.create(file.parent / "party.ledger", Budget(3, 1e-6))
    party = party_of(file)
    asked, setup = question(**changes)
    with pytest.raises(NotAllowedError, match=message):
        party.answer(asked.encode(), setup)
    assert not ledger.entries
    for fine in ({}, {"columns": 6}):
        asked, setup = question(**fine)
        party.answer(asked.encode(), setup)
    assert len(ledger.entries) == 2


def test_the_policys_epsilon_bounds_the_sum_over_a_run(file):
    """Each question alone was within ε = 2; eight of them made it 6."""
    ledger = Ledger.create(file.parent / "party.ledger", Budget(30, 1e-6))
    party = party_of(file)
    asked, setup = question(mu=BUDGET.mu * 0.7)
    party.answer(asked.encode(), setup)
    party.answer(asked.encode(), setup)
    with pytest.raises(NotAllowedError, match=r"epsilon: this run would spend .* in all, the policy allows"):
        party_of(file).answer(asked.encode(), setup)  # also in another process
    assert ledger.spent_by(setup.run.hex()) <= BUDGET.mu * (1 + 1e-9)
    small, _ = question(mu=BUDGET.mu * 0.1)
    party.answer(small.encode(), setup)  # what is left of the run may still be asked
    other = run_of(b"another run.....")
    party.answer(asked.encode(), other)  # another run has its own
    assert len(ledger.entries) == 4


def test_a_run_that_claims_less_than_the_policy_allows_is_held_to_its_claim(file):
    Ledger.create(file.parent / "party.ledger", Budget(30, 1e-6))
    party = party_of(file)
    claim = Budget(1, 1e-6)
    asked, setup = question(mu=claim.mu * 0.9, budget=claim)
    party.answer(asked.encode(), setup)
    with pytest.raises(NotAllowedError, match="epsilon"):
        party.answer(asked.encode(), setup)


def test_collusion_can_be_a_fraction_of_the_members(file):
    file.write_text(TEXT.replace("collusion = 2", "collusion = 0.3"))
    policy = Policy.read(file)
    assert [policy.fewest_corrupt(members) for members in (3, 10, 11, 100)] == [1, 3, 4, 30]
    policy.check_run(run_of(parties=6, collusion=2))
    with pytest.raises(NotAllowedError, match="collusion: 2 was asked for, the policy allows at least 3"):
        policy.check_run(run_of(parties=9, collusion=2))


def test_only_queries_and_sizes_that_are_allowed_are_answered(file):
    ledger = Ledger.create(file.parent / "party.ledger", Budget(30, 1e-6))
    file.write_text(TEXT.replace("columns = 6", 'columns = 6\nqueries = ["product"]\nnumbers = 9'))
    party = party_of(file)
    asked, setup = question()
    with pytest.raises(NotAllowedError, match="queries: popularity was asked for, the policy allows product"):
        party.answer(asked.encode(), setup)
    asked, setup = question(columns=4)
    with pytest.raises(NotAllowedError, match="numbers: 12 was asked for, the policy allows at most 9"):
        party.answer(asked.encode(), setup)
    assert not ledger.entries
    asked, setup = question(columns=3)
    party.answer(asked.encode(), setup)


def test_a_period_bounds_what_all_its_runs_spend(file, monkeypatch):
    ledger = Ledger.create(file.parent / "party.ledger", Budget(30, 1e-6))
    file.write_text(TEXT + "[period]\ndays = 30\nepsilon = 2.5\n")
    party = party_of(file)
    asked, _ = question(mu=BUDGET.mu)
    party.answer(asked.encode(), run_of(b"first run......."))
    with pytest.raises(NotAllowedError, match=r"period: the runs of 30 days would spend mu=.*, the policy allows"):
        party.answer(asked.encode(), run_of(b"second run......"))
    assert len(ledger.entries) == 1
    later = datetime.now(UTC) + timedelta(days=31)

    class Later(datetime):
        @classmethod
        def now(cls, zone=None):
            return later

    monkeypatch.setattr(policy_party, "datetime", Later)
    party.answer(asked.encode(), run_of(b"second run......"))


def test_a_period_bounds_the_number_of_runs_that_begin(file):
    Ledger.create(file.parent / "party.ledger", Budget(30, 1e-6))
    file.write_text(TEXT + "[period]\ndays = 30\nruns = 2\n")
    party = party_of(file)
    answered = Answered(party.policy.markers)
    for name in (b"first run.......", b"second run......"):
        party.check_number_of_runs()
        answered.begin(run_of(name), 0, "begin")
        answered.begin(run_of(name), 0, "ask")
    with pytest.raises(NotAllowedError, match="runs: 2 were begun within 30 days"):
        party.check_number_of_runs()
    month = 31 * 86400
    for marker in party.policy.markers.iterdir():
        os.utime(marker, (marker.stat().st_atime, marker.stat().st_mtime - month))
    party.check_number_of_runs()


def test_a_run_that_does_not_say_what_it_may_spend_is_refused(file):
    policy = Policy.read(file)
    for plan in (b"", b"[]", b"{}", b'{"epsilon": 1, "delta": 2, "remark": ""}', b"\xff"):
        with pytest.raises(NotAllowedError, match="plan: the server does not say"):
            policy.check_run(replace(run_of(), plan=plan))


def test_a_plan_in_words_has_no_control_characters():
    setup = replace(run_of(), plan=Plan(BUDGET, "\x1b[2J" + "x" * 900).encode())
    words = in_words(setup, Plan.decode(setup.plan))
    assert words.isprintable()
    assert len(words) < 500
    for part in ("at most 4 noisy sums over 6 members", "ε = 2 at δ = 1e-06", "2 members may pool with the server"):
        assert part in words
