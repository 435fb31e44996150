"""One product RᵀW(RX) in exact integers beside MKL's and scipy's in float32, in one process.

    make bench      (or: python benchmarks/kernel.py; MKL needs pip install mkl sparse-dot-mkl)

70,000 x 10,000, 8,000,000 ones, 32 columns, 2 threads. The others multiply by 1.0 without weights, and get Rᵀ stored
beforehand; ours reads R twice, weighs and rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from measure import Calls, in_words, interleaved, tastes, uniform

from dpspectral import Interaction
from dpspectral.linalg.operators import BinaryGram
from dpspectral.linalg.orthonormal import flat_start
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.noise import SecureNoise

P, THREADS, PAUSE = 32, 2, 0.3  # MKL's threads spin for 0.2 s
UNIT = Interaction(floor=20)


def kernels(R: sp.csr_array) -> Calls:
    X = Iterate(flat_start(R.shape[1], P, np.random.default_rng(0)))
    gram, shift = BinaryGram(R, UNIT.table(X), threads=THREADS), UNIT.rounding(X).shift
    real = X.values.astype(np.float32)
    plain = sp.csr_matrix(R)
    transposed = plain.T.tocsr()
    calls: Calls = {"dpspectral, exact integers": lambda: gram.product(X.integers, shift)}
    if find_spec("sparse_dot_mkl"):
        libraries = sorted(Path(sys.prefix, "lib").glob("libmkl_rt.so*"))
        if libraries:
            os.environ.setdefault("MKL_RT", str(libraries[0]))
        from sparse_dot_mkl import dot_product_mkl

        calls["MKL, float32"] = lambda: dot_product_mkl(transposed, dot_product_mkl(plain, real))
    calls["scipy, float32, one thread"] = lambda: transposed @ (plain @ real)
    calls["the noise of a product"] = lambda: SecureNoise().rounded_gaussian(1e5, X.shape)
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a tenth of the size, to try the script")
    parser.add_argument("--repeats", type=int, default=21)
    given = parser.parse_args()
    shape = (7_000, 2_000, 400_000) if given.small else (70_000, 10_000, 8_000_000)
    for name, data in (("Uniform", uniform), ("Tastes", tastes)):
        measured = interleaved(kernels(data(*shape)), given.repeats, pause=PAUSE)
        first = statistics.median(next(iter(measured.values())))
        print(f"\n| {name} | ms: median (least to most) | this / ours |\n|---|---|---|")
        for title, times in measured.items():
            print(f"| {title} | {in_words(times, 1e-3)} | {statistics.median(times) / first:.2f} |", flush=True)
    one = interleaved({"core": lambda: [SecureNoise().rounded_gaussian(1e5, (1 << 16,)) for _ in range(32)]}, 9)["core"]
    print(f"\nnoise: {32 * (1 << 16) / statistics.median(one) / 1e6:.0f} million samples a second on one core")


if __name__ == "__main__":
    main()
