"""The exact product on a GPU beside what its gathers take at copy bandwidth, and beside cuSPARSE through torch.

    python benchmarks/gpu.py [--users 2000000 --items 500000 --nonzeros 200000000 --columns 64]

Uniform random 0/1 data. One product A·X gathers 2·nnz·p numbers of 4 bytes and reads the indices twice; the limit is
the time of so many bytes at the bandwidth of a copy on the same device in the same run.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch

from dpspectral.engines.gpu.kernels import block_of, gram_product


def milliseconds(call: Callable[[], object], repeats: int = 7) -> float:
    call()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)


def copy_bandwidth() -> float:
    """TB/s, reading and writing counted."""
    big = torch.empty(1 << 30, dtype=torch.int32, device="cuda")
    other = torch.empty_like(big)
    return 2 * big.nbytes / milliseconds(lambda: other.copy_(big)) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("users", 2_000_000), ("items", 500_000), ("nonzeros", 200_000_000), ("columns", 64)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--block", type=int, nargs="+", default=[1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 21])
    given = parser.parse_args()
    users, items, nnz, p = given.users, given.items, given.nonzeros, given.columns
    torch.manual_seed(0)
    degree = nnz // users
    indices = torch.randint(items, (users, degree), dtype=torch.int32, device="cuda").sort(dim=1).values.reshape(-1)
    X = torch.randint(-(1 << 20), 1 << 20, (items, p), dtype=torch.int32, device="cuda")
    weights = torch.full((items + 1,), 1 << 30, dtype=torch.int64, device="cuda")
    bandwidth = copy_bandwidth()
    limit = (2 * nnz * p * 4 + 2 * nnz * 4) / bandwidth / 1e9
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}: copy {bandwidth:.2f} TB/s; limit {limit:.1f} ms")
    expected = None
    for block in given.block:
        pointers = torch.arange(0, block * degree + 1, degree, device="cuda")
        blocks = []
        for start in range(0, users, block):
            part = indices[start * degree : (start + block) * degree]
            blocks.append(block_of(pointers[: len(part) // degree + 1], part, items))
        torch.cuda.synchronize()
        found = gram_product(blocks, weights, X, 30, narrow_sums=True, narrow_shares=True)
        expected = found if expected is None else expected
        assert torch.equal(found, expected)
        time = milliseconds(lambda: gram_product(blocks, weights, X, 30, narrow_sums=True, narrow_shares=True))  # noqa: B023
        print(f"blocks of {block} users: {time:.1f} ms, {time / limit:.2f} of the limit", flush=True)
    ones = torch.ones(nnz, device="cuda")
    pointers = torch.arange(0, nnz + 1, degree, device="cuda")
    matrix = torch.sparse_csr_tensor(pointers, indices.long(), ones, size=(users, items))
    real = X.float()
    print(f"cuSPARSE R@X: {milliseconds(lambda: matrix @ real, 3):.1f} ms", flush=True)


if __name__ == "__main__":
    main()
