"""σ of every mechanism beside dp-accounting: one test that walks the list of all queries, and whole calls after it.

For each query two things are compared with Google's dp-accounting: the σ of its ledger entry with the least σ that
dp-accounting gives for (ε, δ) and the stated sensitivity; and δ(ε) of what neighbours really differ by, in deviations
that were really drawn (`marked_releases.py`), with the δ of the budget. A query that is not listed here, and a place
that draws noise outside of a query, turn this file red.
"""

import ast
import math
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from marked_releases import Case, Fine, StreamCase, splits, stream_data
from neighbours import all_rows, neighbour_pairs
from small_streams import without

import dpspectral
from dpspectral import (
    BoundedRows,
    Budget,
    Interaction,
    NotPrivate,
    Persons,
    PrivateCatalogue,
    PrivatePCA,
    PrivateRecommender,
    PrivateStandardScaler,
    PrivateStream,
    PrivateTruncatedSVD,
    SymmetricUpdate,
    User,
    UserEpoch,
    decompose,
    dense_release,
    power_method,
)
from dpspectral.data.persons import grouped
from dpspectral.data.synthetic import tastes
from dpspectral.models.evaluation import RankingSums
from dpspectral.privacy.counter import Counter
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.statement import Statement
from dpspectral.privacy.stream_rules import StreamRule
from dpspectral.release.clipping import ClippedProduct, ContributionLengths
from dpspectral.release.coverage import Coverage
from dpspectral.release.item_matrix import ItemProducts
from dpspectral.release.queries import ItemMatrix, Popularity, Product, RootDegrees, RowCount, RowSum, Users
from dpspectral.release.stream_queries import PartyMatrix, StreamTally
from dpspectral.release.tables import ColumnCounts, SecondMoment, SquaredLength

SOURCES = Path(dpspectral.__file__).parent
N = 5
ROWS = all_rows(N)
X = Iterate(np.linalg.qr(np.random.default_rng(0).standard_normal((N, 2)))[0])
WHOLE = Iterate(np.eye(N))
ORDER = np.array([3, 0, 4, 1, 2])
REPLACE = "replace"
PATTERNS = [Interaction(2), Interaction(3, "plain", REPLACE), User(), User(neighbours=REPLACE)]


def patterns(kind, units=PATTERNS, attained=0.85):
    """A query of 0/1 rows: every row of N items as the only user, all neighbours."""
    return [Case([kind(unit)], [row[None] for row in ROWS], list(zip(*neighbour_pairs(N, unit), strict=True)), attained)
            for unit in units]  # fmt: skip


def tables(kind, attained=0.9, relations=("add-remove", REPLACE), unit=BoundedRows):
    """A query of rows of two numbers: rows in all directions, too long ones among them, beside one that stays."""
    turns = np.linspace(0, 2 * math.pi, 24, endpoint=False)
    rows = [np.array([r * math.cos(a), r * math.sin(a)]) for a in turns for r in (1.0, 50.0)]
    fixed, made = np.array([0.3, -0.4]), []
    for relation in relations:
        if relation == REPLACE:
            data, pairs = [np.array([fixed, row]) for row in rows], [(a, b) for a in range(48) for b in range(a)]
        else:
            data = [fixed[None], *(np.array([fixed, row]) for row in rows)]
            pairs = [(0, k) for k in range(1, len(data))]
        own = unit(2.0, neighbours=relation)
        data = [grouped(one, list(range(len(one))), 1) if unit is Persons else own.enforce(one) for one in data]
        made.append(Case([kind(own)], data, pairs, attained))
    return made


def updates():
    unit, base = SymmetricUpdate(), np.diag([2.0, 3.0, 1.0, 0.0, 1.0])
    data = [base]
    for i in range(N):
        change = np.zeros((N, N))
        change[i] = change[:, i] = 1 / N  # rows of absolute sum at most 1
        data.append(base + np.rint(change * 64) / 64)
    return [Case([Product(unit, WHOLE)], [unit.enforce(one) for one in data], [(0, k) for k in range(1, 6)], 0.1)]


def streams(kind):
    """Every stream of three items in three epochs; pairs of the unit, over all epochs together."""
    items = epochs = 3
    lasting, made = Counter(horizon=epochs), []
    reach = {
        Interaction(1): lambda stream: [tuple(without(stream[None], k)[0]) for k in range(items)],
        User(): lambda stream: [(0,) * items],
        UserEpoch(): lambda stream: [(0,) * items] if len(set(stream) - {0}) < 2 else [],
    }
    for unit, neighbours_of in reach.items():
        rule = StreamRule(Interaction(1, "plain") if unit == Interaction(1) else unit, items, 1)
        asked = [kind(unit, rule, lasting, now, items) for now in range(1, epochs + 1)]
        made.append(StreamCase(asked, *stream_data(items, epochs, neighbours_of), 0.85))
    return made


def stream_matrix(unit, rule, counter, now, items):
    return Fine(unit, rule, counter, now, np.arange(items), np.ones(items, dtype=np.int32), items)


def party_matrix(unit, rule, counter, now, items):
    return PartyMatrix(unit, rule, counter, now, np.arange(items), np.ones(items, dtype=np.int32), items)


def evaluations():
    """A list of the two first items that the user does not have; three items, each unknown, known or held out."""
    rows, made = list(product((0, 1, 2), repeat=3)), []

    def lists(known):
        return np.setdiff1d(np.arange(3), known.indices)[:2]

    for unit in (Interaction(), User()):
        one = isinstance(unit, Interaction)
        pairs = [
            (a, b) for (a, first), (b, second) in product(enumerate(rows), repeat=2)
            if (sum(x != y for x, y in zip(first, second, strict=True)) == 1 and 0 in first if one else not any(first))
        ]  # fmt: skip
        made.append(Case([RankingSums(unit, lists, 2)], splits(3, rows), pairs, 0.75 if one else 0.99))
    return made


def counts(unit):
    return ColumnCounts(unit, np.array([[-1.0, 0.5], [-0.5, 1.0]]))


BOTH = (User(), User(neighbours=REPLACE))
CASES = {
    Product: [*patterns(lambda unit: Product(unit, X), attained=0.5), *patterns(lambda unit: Product(unit, WHOLE)),
              *tables(lambda unit: Product(unit, Iterate(np.eye(2)))), *updates()],
    ClippedProduct: patterns(lambda unit: ClippedProduct(unit, X, limit=int(0.4 * Product(unit, X).sensitivity)), BOTH,
                             0.6),
    ContributionLengths: patterns(lambda unit: ContributionLengths(unit, X), BOTH, 0.6),
    Popularity: patterns(lambda unit: Popularity(unit, N)),
    RootDegrees: patterns(lambda unit: RootDegrees(unit, N), PATTERNS[:1]),
    Users: patterns(lambda unit: Users(unit, N), [PATTERNS[0], User()]),
    Coverage: patterns(lambda unit: Coverage(unit, N, np.array([1, 2])), attained=0.8),
    ItemMatrix: patterns(lambda unit: ItemMatrix(unit, N)),
    ItemProducts: [case for stored in (True, False)
                   for case in patterns(lambda unit, stored=stored: ItemProducts(unit, N, stored, ORDER))],
    RowSum: [*tables(lambda unit: RowSum(unit, 2)), *tables(lambda unit: RowSum(unit, 2, True), 0.9, ["add-remove"])],
    RowCount: tables(RowCount, 0.99, ["add-remove"]),
    SecondMoment: [*tables(lambda unit: SecondMoment(unit, 2)),
                   *tables(lambda unit: SecondMoment(unit, 2), unit=Persons),
                   *tables(lambda unit: SecondMoment(unit, 2, constant=1 << 17), 0.6)],
    SquaredLength: tables(SquaredLength, 0.7),
    ColumnCounts: tables(counts, 0.6, unit=Persons),
    StreamTally: streams(StreamTally),
    Fine.__base__: streams(stream_matrix),
    PartyMatrix: streams(party_matrix),
    RankingSums: evaluations(),
}  # fmt: skip
# The same integers and noise as ItemProducts on another device: tests/release/test_gpu_item_matrix.py holds them to it.
ELSEWHERE = {"GpuItemProducts"}
ABSTRACT = {"Query", "_ByDegree", "_Total", "StreamQuery"}
# Where noise is drawn: queries (the first three), their twin on a GPU, and shares of it, which parties and peers add by
# Query.add_noise; the audit's own noise remembers what it drew. Anything else would be a mechanism beside the queries.
DRAWING = {
    "release/queries.py", "release/item_matrix.py", "release/stream_queries.py", "release/gpu_item_matrix.py",
    "protocols/simulated.py", "protocols/peers/peer_keys.py", "privacy/noise.py", "privacy/gpu_noise.py",
    "audit/attacks.py",
}  # fmt: skip


@cache
def trees():
    return {str(file.relative_to(SOURCES)): ast.parse(file.read_text()) for file in SOURCES.rglob("*.py")}


def test_no_query_is_left_out():
    """Read off the sources, so that modules which cannot be imported here count, too."""
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    }  # fmt: skip
    kinds = {"Query"}
    while more := {name for name, above in bases.items() if above & kinds} - kinds:
        kinds |= more
    assert kinds - ABSTRACT - ELSEWHERE == {kind.__name__ for kind in CASES}


def test_no_noise_is_drawn_elsewhere():
    names = {"rounded_gaussian", "keyed", "piece", "consecutive", "streams"}
    calls = {
        (file, node.func.attr) for file, tree in trees().items() for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names
    }  # fmt: skip
    assert {file for file, _ in calls} == DRAWING


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (8.0, 1e-10)])
def test_sigma_of_every_query_is_that_of_dp_accounting(kind, epsilon, delta):
    budget, asked = Budget(epsilon, delta), DifferentialPrivacyParameters(epsilon, delta)
    least = GaussianPrivacyLoss.from_privacy_guarantee(asked, sensitivity=1.0)
    for case in CASES[kind]:
        query = case.queries[0]
        assert isinstance(query, kind)
        entry = query.entry("a test", budget.mu)
        assert entry.sigma == pytest.approx(entry.sensitivity * least.standard_deviation, rel=1e-6)
        mu = case.largest_mu(budget.mu)  # of the worst neighbours that are tried, in the noise that is drawn
        assert GaussianPrivacyLoss(1.0, sensitivity=mu).get_delta_for_epsilon(epsilon) <= delta * 1.01, (
            query
        )  # marks are rounded
        assert mu >= case.attained * budget.mu, query


def spent(ledger, delta):
    accountant = PLDAccountant()
    for entry in ledger.releases if isinstance(ledger, Statement) else ledger.entries:
        accountant.compose(GaussianDpEvent(entry.sigma / entry.sensitivity))
    return accountant.get_epsilon(delta)


@pytest.fixture(scope="module")
def people():
    return tastes(users=300, items=40)


def calls(R, table):
    """A fit by every public method that releases more than one number, by the ledger it leaves."""
    budget = Budget(2, 1e-6)
    one, user = {"unit": Interaction(), "budget": budget}, {"unit": User(), "budget": budget}
    own = {"epsilon": 2, "delta": 1e-6}
    model = PrivateRecommender(4, coverage=0.05, noise=NotPrivate(0), **own).fit(R)
    return {
        "decompose": decompose(R, 4, **one).ledger,
        "power method": power_method(R, 4, **one).ledger,
        "power method, whole users": power_method(R, 4, **user).ledger,
        "dense release": dense_release(R, 4, catalogue=PrivateCatalogue(share=0.2), **user).ledger,
        "recommender": model.ledger_,
        "evaluation": model.evaluate(R, test=tastes(users=300, items=40, seed=5), budget=budget).account,
        "PCA, private bounds": PrivatePCA(2, bounds="private", **own).fit(table).ledger_,
        "SVD": PrivateTruncatedSVD(4, unit=Interaction(5), **own).fit(R).ledger_,
        "scaler": PrivateStandardScaler(bounds="private", **own).fit(table).ledger_,
    }


def test_whole_calls_spend_what_they_were_given(people):
    """The releases of a call, composed by dp-accounting (pessimistic, to 1e-3)."""
    table = np.random.default_rng(1).standard_normal((400, 5))
    for name, ledger in calls(people, table).items():
        assert spent(ledger, 1e-6) <= 2 * (1 + 1e-3), name
        assert spent(ledger, 1e-6) >= 2 * 0.9, name


def test_a_stream_spends_what_it_was_given(tmp_path, people):
    """One charge for ever: the popularity and the matrix of all epochs, by the σ that its files tell."""
    budget, items = Budget(3, 1e-6), [str(k) for k in range(40)]
    for number, unit in enumerate((Interaction(2), User(), UserEpoch())):
        stream = PrivateStream.create(
            tmp_path / str(number), unit=unit, budget=budget, items=items, half_life=3, noise=NotPrivate(0)
        )
        stream.update(dpspectral.data.tables.Table(people, items, "a list", users=[f"u{k}" for k in range(300)]))
        (epoch,) = stream._folder.epochs
        settings = stream._folder.settings
        rules = [(settings.rule(1).tally, epoch.popularity), (settings.rule(epoch.floor).matrix, epoch.matrix)]
        norm = math.sqrt(sum(int(c) ** 2 for c in settings.counter.coefficients))
        mu = math.sqrt(sum((rule.sensitivity * norm / made["sigma"]) ** 2 for rule, made in rules))
        assert GaussianPrivacyLoss(1.0, sensitivity=mu).get_delta_for_epsilon(3) == pytest.approx(1e-6, rel=1e-4)
