"""The curves of figures 1 and 2: every method's basis at every ε, from shared starts. Not private.

The published methods all multiply the same matrix, so they iterate together: one wide block holds the iterates of all
methods and ε of one run. The first product is the same for all of them, and so is the noise before it is scaled (as in
the paper, methods differ in nothing but what they add). Each column of a product is computed as if it were alone, so
results are those of `Baseline.run`, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.core.threads import one_per_core, one_thread_if_small
from dpspectral.linalg import orthonormal
from dpspectral.linalg.floats import row_sums
from dpspectral.methods.catalogue import PrivateCatalogue
from dpspectral.methods.decompose import decompose
from dpspectral.methods.dense import dense_release
from dpspectral.methods.power import PowerOptions, power_method
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.noise import NotPrivate
from dpspectral.privacy.units import Interaction, User
from dpspectral.protocols.simulated import SimulatedSum
from dpspectral.release.source import float_operator
from dpspectral.studies import baselines
from dpspectral.studies.baselines import EXACT, PUBLISHED, Baseline

Reals = NDArray[np.float64]
RANK, ITERATIONS = 32, 3
FLOOR = 16  # a public constant, for the curves that have one
ITEMS = 2000  # another, for the dense release
_WIDE = 2048  # columns of a block
_OTHER_NOISE = 1_000_000  # the decentralised run draws noise of its own


@dataclass(frozen=True)
class Published:
    """A method of the literature under one calibration."""

    label: str
    baseline: Baseline
    calibration: str = PUBLISHED
    other_noise: bool = False


PUBLISHED_CURVES = {
    "central": Published("Nicolas et al. 2025, central", baselines.NICOLAS),
    "decentralised": Published("Nicolas et al. 2025, decentralised", baselines.NICOLAS, other_noise=True),
    "balcan": Published("Balcan et al. 2016, central", baselines.BALCAN),
    "balcan-public": Published("Balcan et al. 2016, public channels", baselines.BALCAN_LOCAL),
    "fedpower": Published("FedPower (reconstruction)", baselines.FEDPOWER),
    "central-exact": Published("Nicolas et al. 2025, exact accounting", baselines.NICOLAS, EXACT),
    "balcan-exact": Published("Balcan et al. 2016, central, exact accounting", baselines.BALCAN, EXACT),
    "balcan-public-exact": Published(
        "Balcan et al. 2016, public channels, exact accounting", baselines.BALCAN_LOCAL, EXACT
    ),
    "fedpower-exact": Published("FedPower (reconstruction), exact accounting", baselines.FEDPOWER, EXACT),
}


def published_bases(
    R: Any, epsilons: tuple[float, ...], delta: float, run: int, names: tuple[str, ...] = tuple(PUBLISHED_CURVES)
) -> Iterator[tuple[str, float, Reals]]:
    """(curve, ε, basis) of all published methods in one run; the number of parties is that of the users."""
    operator = float_operator(R, Interaction(floor=1, weighting="plain"))
    jobs = [(name, epsilon) for name in names for epsilon in epsilons]
    start = orthonormal.gaussian_start(operator.n, RANK, np.random.default_rng(run))
    first = operator.product(start)
    for part in range(0, len(jobs), _WIDE // RANK):
        block = jobs[part : part + _WIDE // RANK]
        yield from _together(operator, start, first, block, delta, run, R.shape[0])


def _together(
    operator: Any, start: Reals, first: Reals, jobs: list[tuple[str, float]], delta: float, run: int, parties: int
) -> Iterator[tuple[str, float, Reals]]:
    iterates = [start] * len(jobs)
    products = [first] * len(jobs)
    streams = {other: baselines.noise_stream(run + other * _OTHER_NOISE) for other in (False, True)}
    for number in range(ITERATIONS):
        if number:
            wide = operator.product(np.hstack(iterates))
            products = [wide[:, column : column + RANK] for column in range(0, wide.shape[1], RANK)]
        noise = {other: stream.standard_normal(start.shape) for other, stream in streams.items()}
        noisy = []
        for (name, epsilon), X, Y in zip(jobs, iterates, products, strict=True):
            curve = PUBLISHED_CURVES[name]
            std = curve.baseline.noise_multiplier(epsilon, delta, ITERATIONS, curve.calibration)
            std *= curve.baseline.spread(parties)
            noisy.append(Y + curve.baseline.sensitivity(X) * std * noise[curve.other_noise])
        if number + 1 < ITERATIONS:
            iterates = one_per_core(lambda Y: orthonormal.qr(Y)[0], noisy)
    bases = one_per_core(lambda Y: orthonormal.leading(Y, RANK, 0.0)[0], noisy)
    yield from ((name, epsilon, basis) for (name, epsilon), basis in zip(jobs, bases, strict=True))


def noiseless_basis(R: Any, run: int) -> Reals:
    """The published iteration from the same start without noise: the reference of `same-start`."""
    operator = float_operator(R, Interaction(floor=1, weighting="plain"))
    X = orthonormal.gaussian_start(operator.n, RANK, np.random.default_rng(run))
    for number in range(ITERATIONS):
        Y = operator.product(X)
        if number + 1 < ITERATIONS:
            X = orthonormal.qr(Y)[0]
    return orthonormal.leading(Y, RANK, 0.0)[0]


@dataclass(frozen=True)
class Ours:
    """A method of this library, on one thread: the ε of a run are computed side by side."""

    label: str
    basis: Callable[[Any, Budget, int], Reals]


def _power(
    unit: Interaction, oversampling: int, start: str, catalogue: PrivateCatalogue | None = None
) -> Callable[[Any, Budget, int], Reals]:
    def basis(R: Any, budget: Budget, run: int) -> Reals:
        return power_method(
            R, RANK, unit=unit, budget=budget, options=PowerOptions(ITERATIONS, oversampling, start),
            catalogue=catalogue, random_state=run, noise=NotPrivate(run), threads=1,
        ).components  # fmt: skip

    return basis


def _dense(R: Any, budget: Budget, run: int) -> Reals:
    catalogue = PrivateCatalogue(items=min(ITEMS, R.shape[1]))
    return dense_release(
        R, RANK, unit=Interaction(), budget=budget, catalogue=catalogue, random_state=run, noise=NotPrivate(run),
        threads=1,
    ).components  # fmt: skip


def _parties(R: Any, budget: Budget, run: int) -> Reals:
    """One party per user, a tenth of them colluding and a tenth allowed to drop out."""
    tenth = R.shape[0] // 10
    source = SimulatedSum(
        R, Interaction(), parties=R.shape[0], collusion=tenth, drop_tolerance=tenth, noise=NotPrivate(run), threads=1
    )
    return decompose(source, RANK, unit=Interaction(), budget=budget, method="power", random_state=run).components


def _automatic(unit: Interaction | User, method: str) -> Callable[[Any, Budget, int], Reals]:
    def basis(R: Any, budget: Budget, run: int) -> Reals:
        noise = NotPrivate(run)
        return decompose(
            R, RANK, unit=unit, budget=budget, method=method, random_state=run, noise=noise, threads=1
        ).components

    return basis


OUR_CURVES = {
    "no-root-two": Ours("+ no √2", _power(Interaction(1, "plain"), 0, "gaussian")),
    "floor": Ours(f"+ degree floor {FLOOR}", _power(Interaction(FLOOR), 0, "gaussian")),
    "oversampled": Ours("+ four times as many columns, flat start", _power(Interaction(FLOOR), 3 * RANK, "flat")),
    "catalogue": Ours("+ private catalogue and floor", _power(Interaction(), 3 * RANK, "auto", PrivateCatalogue())),
    "dense": Ours(f"dense release of {ITEMS:,} items", _dense),
    "automatic-power": Ours("dpspectral, automatic, power method", _automatic(Interaction(), "power")),
    "automatic-parties": Ours("dpspectral, automatic, a party per user (simulated)", _parties),
    "automatic-dense": Ours("dpspectral, automatic, dense release", _automatic(Interaction(), "dense")),
    "automatic-users": Ours("dpspectral, automatic, whole users", _automatic(User(), "dense")),
}
LABELS = {name: curve.label for name, curve in PUBLISHED_CURVES.items()}
LABELS |= {name: curve.label for name, curve in OUR_CURVES.items()}
STEPS = tuple(name for name in LABELS if not name.startswith("automatic"))  # one idea at a time; quick on large data


@dataclass(frozen=True)
class Weighed:
    """What errors are made of: V, R I^−½ V, I V and ‖R I^−½ VVᵀ I^½‖_F²."""

    V: Reals
    rows: Reals
    degrees: Reals
    square: float


class Meter:
    """The relative error (`metrics.relative_error`) of a basis against any reference: one product R·V per basis."""

    def __init__(self, R: Any) -> None:
        degrees = np.asarray(R.sum(axis=0)).ravel().astype(np.float64)
        self.up = np.sqrt(degrees)
        self.down = np.divide(1.0, self.up, out=np.zeros_like(self.up), where=self.up > 0)
        self.rows = Interaction(floor=1, weighting="plain").enforce(R)

    def weigh(self, V: Reals) -> Weighed:
        rows, degrees = row_sums(self.rows, self.down[:, None] * V), (self.up**2)[:, None] * V
        with one_thread_if_small(1, 1):  # waiting BLAS threads would slow the next product down
            return Weighed(V, rows, degrees, float(np.sum((rows.T @ rows) * (V.T @ degrees))))

    @staticmethod
    def error(reference: Weighed, basis: Weighed) -> float:
        """‖R I^−½ (VVᵀ − UUᵀ) I^½‖_F / ‖R I^−½ UUᵀ I^½‖_F."""
        with one_thread_if_small(1, 1):
            cross = float(np.sum((reference.rows.T @ basis.rows) * (reference.V.T @ basis.degrees)))
        return math.sqrt(max(reference.square + basis.square - 2 * cross, 0.0) / reference.square)
