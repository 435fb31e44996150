"""A GPU: the exact product beside what its gathers take at copy bandwidth, the private loop beside torch.svd_lowrank.

    python benchmarks/gpu.py [--users 2000000 --items 500000 --nonzeros 200000000 --columns 64]

Random 0/1 data. One product A·X gathers 2·nnz·p numbers of 4 bytes and reads the indices twice; the limit is the time
of so many bytes at the bandwidth of a copy on the same device in the same run. The loop makes 3 products, hence 6
passes over the data; so does `svd_lowrank` with niter=2. Runs are interleaved; medians.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from measure import in_words, interleaved

from dpspectral import Budget, Interaction, NotPrivate, PowerOptions, __version__, power_method
from dpspectral.data.gpu_rows import GpuRows
from dpspectral.linalg.gpu_iterate import GpuIterate
from dpspectral.release.queries import Product

timed = partial(interleaved, settle=torch.cuda.synchronize, pause=0.0)  # an idle GPU clocks down


def copy_bandwidth() -> float:
    """TB/s, reading and writing counted."""
    big = torch.empty(1 << 30, dtype=torch.int32, device="cuda")
    other = torch.empty_like(big)
    return 2 * big.nbytes / statistics.median(timed({"copy": lambda: other.copy_(big)}, 9)["copy"]) / 1e12


def uniform(users: int, items: int, degree: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Row pointers and indices of users with `degree` random items each, fewer where one was drawn twice."""
    drawn = torch.randint(items, (users, degree), dtype=torch.int32, device="cuda").sort(dim=1).values
    new = torch.ones_like(drawn, dtype=torch.bool)
    new[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
    pointers = torch.zeros(users + 1, dtype=torch.int64, device="cuda")
    torch.cumsum(new.sum(dim=1), 0, out=pointers[1:])
    return pointers, drawn[new]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("users", 2_000_000), ("items", 500_000), ("nonzeros", 200_000_000), ("columns", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--repeats", type=int, default=11)
    given = parser.parse_args()
    users, items, p = given.users, given.items, given.columns
    torch.manual_seed(0)
    pointers, indices = uniform(users, items, given.nonzeros // users)
    nnz = len(indices)
    bandwidth = copy_bandwidth()
    print(f"dpspectral {__version__}, {torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{users:,} x {items:,}, {nnz:,} ones, p = {p}; copy {bandwidth:.2f} TB/s", flush=True)

    unit, arrays = Interaction(floor=100), (np.ones(nnz, dtype=bool), indices.cpu().numpy(), pointers.cpu().numpy())
    rows = GpuRows(sp.csr_array(arrays, shape=(users, items))).enforced(unit)
    query = Product(
        unit, GpuIterate(torch.linalg.qr(torch.randn((items, p), dtype=torch.float64, device="cuda"))[0], 20)
    )
    matrix = torch.sparse_csr_tensor(pointers, indices.long(), torch.ones(nnz, device="cuda"), (users, items))
    real = torch.randn((items, p), device="cuda")
    limit = 1e3 * (2 * nnz * p * 4 + 2 * nnz * 4) / bandwidth / 1e12
    products = timed(
        {
            "A·X, exact integers": lambda: rows.gram(query.unit.table(query.X)).tensor_product(
                query.X, query.rounding.shift
            ),
            "cuSPARSE through torch, R@X alone, float32": lambda: matrix @ real,
        },
        given.repeats,
    )

    def loop(noise: NotPrivate | None = None) -> object:
        settings = {"unit": unit, "budget": Budget(1, 1e-8), "users": users, "catalogue": None}
        return power_method(rows, p, noise=noise, options=PowerOptions(3, 0), **settings)

    whole = timed(
        {
            "dpspectral, private, 3 iterations": loop,
            "dpspectral, noise off": lambda: loop(NotPrivate(0, scale=0)),
            "torch.svd_lowrank, float32, niter=2": lambda: torch.svd_lowrank(matrix, q=p, niter=2),
        },
        given.repeats,
    )
    print(f"\n| product | ms: median (least to most) | of the limit ({limit:.1f} ms) |\n|---|---|---|")
    for name, times in products.items():
        print(f"| {name} | {in_words(times, 1e-3)} | {1e3 * statistics.median(times) / limit:.2f} |")
    private = statistics.median(whole["dpspectral, private, 3 iterations"])
    print("\n| loop | ms: median (least to most) | this / private |\n|---|---|---|")
    for name, times in whole.items():
        print(f"| {name} | {in_words(times, 1e-3)} | {statistics.median(times) / private:.2f} |")


if __name__ == "__main__":
    main()
