"""From frames to sums: every query that a fit asks is asked again about a neighbour, and moves within its bound.

The queries of a fit on one frame (with all that was released before them as public facts) are evaluated on the rows
that the estimator makes of a neighbour: the same frame without one person, or with another person's rows instead.
"""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dpspectral import NotPrivate, PrivatePCA
from dpspectral.privacy.units import Persons
from dpspectral.release import source as release_source

NAMES = ["age", "dose", "pulse"]
BOUNDS = {"age": (0, 110), "dose": (0, 5), "pulse": (30, 200)}
MARGIN = 1 + 1e-12


def people(seed):
    """Rows of 40 persons: gaps, values out of bounds, extreme rows; identifiers are numbers, or text of numbers."""
    rng = np.random.default_rng(seed)
    person = rng.integers(0, 40, 160)
    values = np.column_stack([rng.uniform(0, 110, 160), rng.exponential(2, 160), rng.uniform(30, 200, 160)])
    values[person == 3] = [110.0, 5.0, 200.0]  # as long as a row can be
    values[person == 4] = [1e308, -1e308, np.inf]
    values[person == 5] = np.nan
    values[rng.random(values.shape) < 0.05] = np.nan
    return person, values


def framed(kind, person, values):
    ids = [str(p) if k % 3 else int(p) for k, p in enumerate(person)] if kind == "mixed" else list(map(int, person))
    if kind == "polars":
        return pl.DataFrame(values, schema=NAMES).with_columns(pl.Series("patient", list(map(str, ids))))
    return pd.DataFrame(values, columns=NAMES).assign(patient=ids)


def asked(estimator, frame, monkeypatch):
    """The queries of a fit without noise, in order."""
    seen, released = [], release_source.released

    def listen(query, rows, *rest, **options):
        seen.append(query)
        return released(query, rows, *rest, **options)

    monkeypatch.setattr(release_source, "released", listen)
    estimator.fit(frame)
    monkeypatch.setattr(release_source, "released", released)
    return seen


def weighted(query, integers):
    flat, parts, start = integers.reshape(-1).astype(float), [], 0
    for count, factor in query.deviations:
        parts.append(flat[start : start + count] / factor)
        start += count
    return np.concatenate(parts)


def evaluated(query, rows):
    """Columns with public bounds are not counted: here, all but the second."""
    if getattr(query, "edges", None) is not None and query.preparation is None and len(query.edges) == 1:
        rows = rows.restricted(np.array([1]))
    return weighted(query, query.evaluate(rows))


CASES = [
    dict(bounds=BOUNDS),
    dict(bounds=BOUNDS, norm="private"),
    dict(bounds=BOUNDS, contribution="clip"),
    dict(bounds="private"),
    dict(bounds={**BOUNDS, "dose": "private"}, gaps="mean"),
    dict(bounds=BOUNDS, centring="joint", norm=1.0),
    dict(bounds=BOUNDS, iterations=2, oversampling=1),
    dict(bounds=BOUNDS, passes=2),
    dict(bounds=BOUNDS, passes=2, contribution="clip", norm=1.5),
]


@pytest.mark.parametrize("kind", ["pandas", "polars", "mixed"])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(f"{k}={str(v)[:9]}" for k, v in case.items()))
def test_no_person_moves_a_query_by_more_than_its_bound(kind, neighbours, case, monkeypatch):
    person, values = people(1)
    more = {"n_samples": 40} if case.get("centring") == "joint" else {}
    model = PrivatePCA(2, **case, groups="patient", rows_per_group=3, neighbours=neighbours, epsilon=500.0, delta=1e-6,
                       random_state=0, noise=NotPrivate(0, scale=0), **more)  # fmt: skip
    queries = asked(model, framed(kind, person, values), monkeypatch)
    assert all(isinstance(query.unit, Persons) for query in queries)
    rows = model._rows(framed(kind, person, values), "patient")
    sums = [evaluated(query, rows) for query in queries]
    for gone in range(8):
        keep = person != gone
        if neighbours == "replace":
            other = np.where(keep[:, None], values, values[np.argmax(person == 39 - gone)])
            near = framed(kind, np.where(keep, person, 1000), other)
        else:
            near = framed(kind, person[keep], values[keep])
        neighbour = model._rows(near, "patient")
        for query, before in zip(queries, sums, strict=True):
            moved = np.linalg.norm(evaluated(query, neighbour) - before)
            assert moved <= query.sensitivity * MARGIN, (type(query).__name__, gone)


def test_grids_do_not_depend_on_the_data(monkeypatch):
    """The first grid is the same for any table, and the second only depends on what was released by the first."""
    values = np.clip(people(2)[1], -1e9, 1e9)
    grids = []
    for data in (values, values * 1e5 - 7):
        model = PrivatePCA(2, bounds="private", epsilon=50.0, delta=1e-6, noise=NotPrivate(0, scale=0))
        queries = asked(model, pd.DataFrame(data, columns=NAMES), monkeypatch)
        grids.append(queries[0].edges)
    assert np.array_equal(grids[0], grids[1])
    given = PrivatePCA(2, bounds="private", bounds_range=(0, 300), epsilon=50.0, delta=1e-6, noise=NotPrivate(0))
    for data in (values, values * 1e5 - 7):
        grids.append(asked(given, pd.DataFrame(data, columns=NAMES), monkeypatch)[0].edges)
    assert np.array_equal(grids[2], grids[3])
    assert (grids[2][:, 0] == 0).all()
    assert (grids[2][:, -1] == 300).all()


def test_every_release_is_charged(monkeypatch):
    """As many entries as queries, each with the query's sensitivity."""
    person, values = people(3)
    for case in CASES:
        more = {"n_samples": 40} if case.get("centring") == "joint" else {}
        model = PrivatePCA(
            2, **case, groups=person, rows_per_group=3, epsilon=5.0, delta=1e-6, noise=NotPrivate(0), **more
        )
        queries = asked(model, pd.DataFrame(values, columns=NAMES), monkeypatch)
        entries = model.ledger_.entries
        assert [entry.sensitivity for entry in entries] == [query.sensitivity for query in queries]
        assert model.ledger_.epsilon() == pytest.approx(5.0, rel=1e-6)
