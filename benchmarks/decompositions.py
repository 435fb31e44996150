"""Private and other decompositions of the same matrix in one run: time, memory, captured energy.

    make bench      (installs the peers into an environment of their own; or: python benchmarks/decompositions.py)

Everyone gets S = W^½R (float32; ours gets R, and weighs it), whose right singular vectors are the eigenvectors of
A = RᵀWR. L products with A are 2L passes over the data; randomized methods get as many, and as many columns. Energy is
trace(VᵀAV) as a part of the best possible. Calls are interleaved, and medians of one run compared. Peers that are not
installed are left out.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse as sp
from measure import Calls, energy, in_words, interleaved, resident_peak, tastes, uniform
from scipy.sparse.linalg import svds
from sklearn.decomposition import TruncatedSVD
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from dpspectral import Budget, Interaction, NotPrivate, PowerOptions, __version__, decompose, power_method

P, ITERATIONS, THREADS = 32, 3, 2
BUDGET = Budget(1, 1e-8)
UNIT = Interaction(floor=20)


def ours(R: sp.csr_array) -> Calls:
    def run(noise: NotPrivate | None, **options: Any) -> Any:
        return power_method(R, P, unit=UNIT, budget=BUDGET, noise=noise, threads=THREADS, **options).components

    equal = {"options": PowerOptions(ITERATIONS, 0), "catalogue": None}
    return {
        "dpspectral, private": lambda: run(None, **equal),
        "dpspectral, noise off": lambda: run(NotPrivate(0, scale=0), **equal),
        "dpspectral, private, decompose()": lambda: (
            decompose(R, P, unit=Interaction(), budget=BUDGET, users=R.shape[0]).components
        ),
    }


def peers(S: sp.csr_matrix) -> Calls:
    options = {"n_oversamples": 0, "n_iter": ITERATIONS - 1, "random_state": 0}

    def truncated() -> Any:
        one_more = {**options, "n_oversamples": 1}  # it takes no fewer
        return TruncatedSVD(P, **one_more).fit(S).components_.T

    calls: Calls = {
        "scikit-learn randomized_svd": lambda: randomized_svd(S, P, **options)[2].T,
        "scikit-learn TruncatedSVD": truncated,
        "scipy svds (to convergence)": lambda: svds(S, P, random_state=0)[2].T,
    }
    if find_spec("torch"):
        import torch

        torch.set_num_threads(THREADS)
        arrays = [torch.from_numpy(a) for a in (S.indptr.astype(np.int64), S.indices.astype(np.int64), S.data)]
        tensor = torch.sparse_csr_tensor(*arrays, size=S.shape)
        coo = tensor.to_sparse_coo().coalesce()
        for kind, matrix in (("CSR", tensor), ("COO", coo)):
            calls[f"torch.svd_lowrank, {kind}"] = lambda matrix=matrix: torch.svd_lowrank(
                matrix, q=P, niter=ITERATIONS - 1
            )[2].numpy()
    if find_spec("fbpca"):
        import fbpca

        calls["fbpca"] = lambda: fbpca.pca(S, k=P, raw=True, n_iter=ITERATIONS - 1, l=P)[2].T
    if find_spec("implicit"):
        from implicit.als import AlternatingLeastSquares

        def als() -> Any:
            model = AlternatingLeastSquares(P, iterations=ITERATIONS, num_threads=THREADS, random_state=0)
            with threadpool_limits(1, "blas"):  # as it asks for
                model.fit(S, show_progress=False)
            return np.linalg.qr(model.item_factors)[0]

        calls["implicit ALS, as many iterations"] = als
    return calls


def compare(name: str, R: sp.csr_array, repeats: int) -> None:
    degrees = np.diff(R.indptr)
    S = sp.csr_matrix(R)
    S.data = np.repeat(np.sqrt(UNIT.weights(R.shape[1])[degrees]), degrees).astype(np.float32)
    calls = {**ours(R), **peers(S)}
    next(iter(ours(R[:500]).values()))()  # compile
    memory = {title: resident_peak(call) for title, call in calls.items()}
    best = float(np.sum(svds(S.astype(np.float64), P)[1] ** 2))
    captured = {title: energy(S, np.asarray(call())) / best for title, call in calls.items()}
    measured = interleaved(calls, repeats)

    print(f"\n## {name}: {R.shape[0]:,} x {R.shape[1]:,}, {R.nnz:,} ones, p = {P}, L = {ITERATIONS}, ε = 1")
    print(
        "\n| | seconds: median (least to most) | private / this | MiB above the input | energy |\n|---|---|---|---|---|"
    )
    private = statistics.median(measured["dpspectral, private"])
    for title, times in measured.items():
        peak, ratio = memory[title], private / statistics.median(times)
        shown = "-" if peak is None else f"{peak / 2**20:.0f}"
        print(f"| {title} | {in_words(times)} | {ratio:.2f} | {shown} | {captured[title]:.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a tenth of the size, to try the script")
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse")  # torch: its sparse matrices are in beta
    shape = (7_000, 2_000, 400_000) if given.small else (70_000, 10_000, 8_000_000)
    print(f"dpspectral {__version__}, Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}")
    print(f"{os.cpu_count()} cores, {THREADS} threads")
    compare("Uniform", uniform(*shape), given.repeats)
    compare("Tastes", tastes(*shape), given.repeats)


if __name__ == "__main__":
    main()
