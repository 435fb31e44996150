"""Write the golden set of the version that is installed: results, a recommender, a ledger, a store, what they say.

    python tests/compatibility/make.py tests/compatibility/files/VERSION

Run it once for a release, with that release, and list the version in test_old_files.py. A ledger knows where it was
made: make the set in a folder that names nobody, such as /srv/example/VERSION, and move it.
"""

import json
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from dpspectral import Budget, Interaction, Ledger, PrivateRecommender, Store, decompose, power_method

U, J = np.arange(120)[:, None], np.arange(30)[None]
ROWS = ((U % 5 == J % 5) & ((U * 7 + J * J * 3 + U * J) % 11 < 8)) | ((U * 13 + J * 17) % 23 == 0)


def main(out: Path) -> None:
    out.mkdir(parents=True)
    R, names = sp.csr_array(ROWS), [f"film {k}" for k in range(30)]
    ledger = Ledger.create(out / "people.ledger", Budget(20, 1e-8))
    basis = decompose(R, 3, unit=Interaction(), budget=Budget(6, 1e-8), ledger=ledger)
    power = power_method(R, 3, unit=Interaction(3), budget=Budget(5, 1e-8), ledger=ledger)
    model = PrivateRecommender(3, epsilon=8, delta=1e-8, filter="gf-cf").fit(R)
    basis.save(out / "basis.npz", items=names)
    power.save(out / "power.npz")
    model.save(out / "model.npz", names)
    Store.write(out / "store", [R[:50], R[50:]], 30)
    told = {
        name: {"eigenvalues": one.eigenvalues.tolist(), "first": np.abs(one.components[:, 0]).tolist()}
        for name, one in (("basis", basis), ("power", power))
    }
    told["lists"] = model.recommend(R[:4], top=5).positions.tolist()
    told["ledger"] = {"mu": ledger.mu, "entries": len(ledger.entries), "epsilon": 20}
    told["store"] = {"shape": [120, 30], "interactions": int(R.nnz)}
    (out / "expected.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
