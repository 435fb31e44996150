"""Data is converted and scanned once a call, whatever its format."""

import numpy as np
import pytest
import scipy.sparse as sp

from dpspectral import (
    Budget,
    Interaction,
    Ledger,
    Peers,
    PrivateCatalogue,
    PrivateRecommender,
    SecureSum,
    Store,
    decompose,
    dense_release,
    power_method,
)
from dpspectral.core import matrices

BUDGET = Budget(2, 1e-6)
CALLS = {
    "decompose": lambda R: decompose(R, 3, unit=Interaction(), budget=BUDGET),
    "decompose, power": lambda R: decompose(R, 3, unit=Interaction(), budget=BUDGET, method="power"),
    "power_method": lambda R: power_method(R, 3, unit=Interaction(5), budget=BUDGET),
    "dense_release": lambda R: dense_release(R, 3, unit=Interaction(5), budget=BUDGET),
    "recommender": lambda R: PrivateRecommender(3, epsilon=2, delta=1e-6).fit(R),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dense"])
def test_a_call_converts_and_scans_the_data_once(ratings, monkeypatch, name, form):
    scans, conversions = [], []

    def counted(data, binarize, original=matrices._interactions):
        scans.append(data.shape)
        return original(data, binarize)

    monkeypatch.setattr(matrices, "_interactions", counted)
    data = ratings.toarray() if form == "dense" else ratings.asformat(form)
    kind = type(data)
    if form in ("csc", "coo"):
        original = kind.tocsr

        def tocsr(self, *given, **options):
            conversions.append(self.shape)
            return original(self, *given, **options)

        monkeypatch.setattr(kind, "tocsr", tocsr)
    CALLS[name](data)
    assert scans == [ratings.shape]
    assert conversions == ([ratings.shape] if form in ("csc", "coo") else [])


@pytest.mark.parametrize("holder", ["matrix", "store", "secure sum", "peers"])
def test_max_bytes_holds_wherever_the_rows_lie(ratings, tmp_path, holder):
    """80 items take 51,200 bytes. What does not fit is refused, cut to what fits, or iterated, and nothing is charged
    before that is known."""
    Store.write(tmp_path / "store", [ratings], 80)
    make = {
        "matrix": lambda: ratings,
        "store": lambda: Store.open(tmp_path / "store"),
        "secure sum": lambda: SecureSum.split(ratings, Interaction(5), 4),
        "peers": lambda: Peers.split(ratings, Interaction(5), 4, degree=3),
    }[holder]
    call = {"unit": Interaction(5), "budget": BUDGET, "max_bytes": 8 * 30**2}
    ledger = Ledger(BUDGET)
    stored = {"storage": "stored"} if holder == "matrix" else {}
    for more in ({}, {"catalogue": PrivateCatalogue(items=40)}):
        with pytest.raises(MemoryError, match="max_bytes"):
            dense_release(make(), 3, **call, **more, **stored, ledger=ledger)
    assert not ledger.entries
    assert len(dense_release(make(), 3, **call, catalogue=PrivateCatalogue()).catalogue.chosen) <= 30
    assert decompose(make(), 3, **call, catalogue=None).facts.method == "power"


@pytest.mark.parametrize("repeated", [True, False])
def test_repeated_and_stored_zero_entries_of_a_list_of_pairs(repeated):
    """(0, 1) twice is one interaction, also where one of them is a stored zero; (1, 0) is only a stored zero."""
    values = np.array([1, 1 if repeated else 0, 0, 1])
    data = sp.coo_array((values, ([0, 0, 1, 2], [1, 1, 0, 2])), shape=(3, 3))
    found = matrices.pattern(data, binarize=False)
    assert np.array_equal(found.astype(int).toarray(), [[0, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert found.nnz == 2
