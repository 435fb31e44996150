"""A GPU: the exact product and the private loop, or the dense release, beside limits of the device and torch.

    python benchmarks/gpu.py product [--users 2000000 --items 500000 --nonzeros 200000000 --columns 64]
    python benchmarks/gpu.py kept    [--users 2000000 --items 500000 --nonzeros 200000000 --kept 20000 --rank 32]
    python benchmarks/gpu.py all     [--users 2000000 --items 100000 --nonzeros 200000000 --rank 64]

`product`: random 0/1 data. One product A·X gathers 2·nnz·p numbers of 4 bytes and reads the indices twice; the limit is
the time of so many bytes at the bandwidth of a copy on the same device in the same run. The loop makes 3 products,
hence 6 passes over the data; so does `svd_lowrank` with niter=2. Runs are interleaved; medians.

`kept`: decompose() with an open floor and a private catalogue of so many items, and with an automatic one of at most so
many, whose sizes are compared afterwards; data whose popularity falls as a power. `all`: decompose() without a
catalogue, the matrix of all items in float32 on the device. Both from rows on the host (checked, copied) and from rows
on the device, beside `svd_lowrank` of the float matrix, and the stages with their rates: pair updates, noise samples,
bytes of M in a product.

Without a GPU, TRITON_INTERPRET=1 and small sizes try the script itself; such times say nothing.
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from measure import in_words, interleaved

from dpspectral import (
    Budget,
    Interaction,
    NotPrivate,
    PowerOptions,
    PrivateCatalogue,
    __version__,
    decompose,
    power_method,
)
from dpspectral.data.gpu_rows import INTERPRETED, GpuRows
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.noise import SecureNoise
from dpspectral.release.gpu_item_matrix import GpuNoise
from dpspectral.release.item_matrix import TILE
from dpspectral.release.queries import Product

DEVICE = "cpu" if INTERPRETED else "cuda"
settle = (lambda: None) if INTERPRETED else torch.cuda.synchronize
timed = partial(interleaved, settle=settle, pause=0.0)  # an idle GPU clocks down


def copy_bandwidth() -> float:
    """TB/s, reading and writing counted."""
    big = torch.empty(1 << (16 if INTERPRETED else 30), dtype=torch.int32, device=DEVICE)
    other = torch.empty_like(big)
    return 2 * big.nbytes / statistics.median(timed({"copy": lambda: other.copy_(big)}, 9)["copy"]) / 1e12


def drawn(users: int, items: int, degree: int, power: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Row pointers and indices of users with `degree` random items each, fewer where one was drawn twice.

    Item number items·uˢ for a uniform u: s = 1 makes all items equally popular.
    """
    numbers = torch.rand((users, degree), device=DEVICE).pow_(power).mul_(items).int().clamp_(max=items - 1)
    numbers = numbers.sort(dim=1).values
    new = torch.ones_like(numbers, dtype=torch.bool)
    new[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    pointers = torch.zeros(users + 1, dtype=torch.int64, device=DEVICE)
    torch.cumsum(new.sum(dim=1), 0, out=pointers[1:])
    return pointers, numbers[new]


def on_host(pointers: torch.Tensor, indices: torch.Tensor, shape: tuple[int, int]) -> sp.csr_array:
    return sp.csr_array((np.ones(len(indices), dtype=bool), indices.cpu().numpy(), pointers.cpu().numpy()), shape=shape)


def as_floats(pointers: torch.Tensor, indices: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    return torch.sparse_csr_tensor(pointers, indices.long(), torch.ones(len(indices), device=DEVICE), shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["product", "kept", "all"])
    for name, value in (("users", 2_000_000), ("items", 0), ("nonzeros", 200_000_000), ("columns", 64), ("rank", 0),
                        ("kept", 20_000), ("repeats", 0)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    given.items = given.items or (100_000 if given.what == "all" else 500_000)
    given.rank = given.rank or (64 if given.what == "all" else 32)
    torch.manual_seed(0)
    name = "interpreter" if INTERPRETED else torch.cuda.get_device_name()
    print(f"dpspectral {__version__}, {name}, torch {torch.__version__}; copy {copy_bandwidth():.2f} TB/s", flush=True)
    product(given) if given.what == "product" else dense(given)


def dense(given: argparse.Namespace) -> None:
    """decompose() by the dense release, and its stages."""
    shape, rank = (given.users, given.items), given.rank
    pointers, indices = drawn(*shape, given.nonzeros // given.users, power=4 if given.what == "kept" else 2)
    host = on_host(pointers, indices, shape)
    print(f"{shape[0]:,} x {shape[1]:,}, {len(indices):,} ones, rank {rank}", flush=True)
    settings = {"budget": Budget(1, 1e-8), "method": "dense", "unit": Interaction()}
    if given.what == "kept":
        settings |= {"max_bytes": 8 * given.kept**2, "catalogue": PrivateCatalogue(items=given.kept)}
    else:
        settings |= {"max_bytes": 8 * given.items**2, "unit": Interaction(floor=100), "catalogue": None}
    rows = GpuRows(host).enforced(settings["unit"])
    found = decompose(rows, rank, **settings)  # the first one compiles kernels
    print(found.reason, flush=True)
    floats = as_floats(pointers, indices, shape)
    calls = {
        "decompose(), rows on the device": lambda: decompose(rows, rank, **settings),
        "decompose(), rows on the host": lambda: decompose(GpuRows(host), rank, **settings),
        "torch.svd_lowrank, float32, niter=2": lambda: torch.svd_lowrank(floats, q=rank + 8, niter=2),
    }
    if given.what == "kept":
        automatic = settings | {"catalogue": "auto"}
        calls["decompose(), automatic catalogue, rows on the device"] = lambda: decompose(rows, rank, **automatic)
    times = timed(calls, given.repeats or 6)
    print("\n| | s: median (least to most) |\n|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {in_words(seconds)} |")
    if not INTERPRETED:
        print(f"peak memory on the device {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    popular = None if found.catalogue is None else found.catalogue.chosen
    stages(rows if popular is None else rows.restricted(popular), rank)


def stages(rows: GpuRows, rank: int) -> None:
    """Pair updates, noise and one product of the dense release, each alone."""
    n, unit = rows.shape[1], Interaction(floor=100)
    rounding = unit.dense_rounding(n)
    counts = rows.gram(rounding.table).pair_counts()
    updates = sum(float((degrees * (degrees + 1) // 2).sum()) for degrees in (torch.diff(p) for p, _ in rows.parts))
    room = torch.zeros((min(TILE, n), n), dtype=torch.int64, device=DEVICE)
    noise = GpuNoise(room, rounding.sensitivity / 0.1, SecureNoise().keyed())
    M = torch.rand((n, n), device=DEVICE)
    V = torch.rand((n, rank + 8), device=DEVICE)

    class Nothing:
        def add(self, first: int, last: int, out: torch.Tensor) -> None:
            pass

    def count() -> None:
        for start in range(0, n, TILE):
            counts.add(start, min(start + TILE, n), room)

    times = timed(
        {"pairs": count, "noise": lambda: [None for _ in noise.bands(Nothing())], "product": lambda: M @ V}, 5
    )
    pairs, samples, multiply = (statistics.median(times[name]) for name in ("pairs", "noise", "product"))
    print("\n| stage | s | rate |\n|---|---|---|")
    print(f"| transposed rows -> pair counts, {updates:.3g} updates | {pairs:.3g} | {updates / pairs:.3g} per second |")
    print(f"| noise, {n * (n + 1) / 2:.3g} samples | {samples:.3g} | {n * (n + 1) / 2 / samples:.3g} per second |")
    print(f"| M·V, {V.shape[1]} columns | {multiply:.3g} | {4 * n * n / multiply / 1e12:.3g} TB/s of M |")


def product(given: argparse.Namespace) -> None:
    """A·X, and the loop."""
    users, items, p = given.users, given.items, given.columns
    pointers, indices = drawn(users, items, given.nonzeros // users)
    nnz, bandwidth = len(indices), copy_bandwidth()
    print(f"{users:,} x {items:,}, {nnz:,} ones, p = {p}", flush=True)
    given.repeats = given.repeats or 11

    unit = Interaction(floor=100)
    rows = GpuRows(on_host(pointers, indices, (users, items))).enforced(unit)
    query = Product(unit, Iterate(torch.linalg.qr(torch.randn((items, p), dtype=torch.float64, device=DEVICE))[0]))
    matrix = as_floats(pointers, indices, (users, items))
    real = torch.randn((items, p), device=DEVICE)
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
