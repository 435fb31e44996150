"""What a run released, and nothing else: a basis, what it cost, and how it was made. Saved to one file, and loaded.

All of it may be published: released figures, and facts that the caller declared or chose. Reports are made from it.

The file is an .npz of `eigenvalues`, `summary` (JSON) and, as far as there are any, `popularity` of all items, `chosen`
(positions of the kept ones), `item_names` (a JSON list as UTF-8 bytes), and either `components` of all items or, where
a catalogue kept fewer, `kept_components`: their rows alone, because all others are zero. What stands above the noise is
in `spectrum_vectors`, `spectrum_values` and, where it was released, `spectrum_diagonal`. Version 0.1 wrote `components`
always, and names as an array of text, `items`.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.core.files import UNREADABLE, check_writable, read_arrays, write_whole
from dpspectral.core.resources import GIB, available_memory
from dpspectral.methods.above_noise import Spectrum
from dpspectral.methods.catalogue import Catalogue
from dpspectral.methods.coverage import Covered
from dpspectral.privacy.budget import Budget, epsilon_from_mu
from dpspectral.privacy.ledger import Ledger
from dpspectral.privacy.statement import Statement

Reals = NDArray[np.float64]
_OWN = {
    "components", "kept_components", "eigenvalues", "summary", "popularity", "chosen", "items", "item_names",
    "spectrum_vectors", "spectrum_values", "spectrum_diagonal",
}  # fmt: skip


class Facts(NamedTuple):
    """How a result was made. None of it is about single records."""

    method: str  # "power", "dense" or "stream"
    noise_std: float  # per entry of the (last) release
    budget: Budget | None = None  # of the call
    own_budget: bool = True  # no other call shares it
    public: tuple[str, ...] = ()  # what the caller declared public, in words
    iterations: int | None = None
    columns: int | None = None
    start: str | None = None
    storage: str | None = None
    users_declared: int | None = None
    users_counted: int | None = None
    parties: Mapping[str, Any] | None = None  # who held the rows, if not one curator
    items_from: str | None = None  # where the list of items came from
    reason: str = ""  # why things were chosen as they were, where `decompose` chose them
    table: Mapping[str, Any] | None = None  # of a table of numbers: how columns and persons were treated
    coverage: Covered | None = None  # what the kept items cover, where that was released
    stream: Mapping[str, Any] | None = None  # of an epoch of a stream: its number, and what was promised for all

    def record(self) -> dict[str, Any]:
        """For JSON: what is known."""
        record = self._asdict()
        record["budget"] = None if self.budget is None else self.budget.record()
        record["public"] = list(self.public)
        record["coverage"] = None if self.coverage is None else self.coverage.record()
        return {name: value for name, value in record.items() if value is not None and value != ""}

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Facts:
        """What `record` wrote; names it does not know are left out."""
        known = {name: record[name] for name in cls._fields if name in record}
        if "budget" in known:
            known["budget"] = Budget(known["budget"]["epsilon"], known["budget"]["delta"])
        known["public"] = tuple(str(one) for one in known.get("public", ()))
        for name in ("iterations", "columns", "users_declared", "users_counted"):
            checks.optional_integer(name, known.get(name), low=1)
        for name in ("method", "start", "storage", "items_from", "reason"):
            if not isinstance(known.get(name, ""), str):
                raise TypeError(f"{name} must be text, got {known[name]!r}")
        for name in ("parties", "table", "stream"):
            if not isinstance(known.get(name, {}), Mapping):
                raise TypeError(f"{name} must be a table, got {known[name]!r}")
        if "coverage" in known:
            known["coverage"] = Covered.of_record(known["coverage"])
        known["noise_std"] = checks.real("noise_std", known["noise_std"])
        return cls(**known)


@dataclass(frozen=True)
class Result:
    """What a run released, and nothing else.

    Attributes
    ----------
    components : (items, rank)
        Orthonormal columns, leading first; rows of items outside a catalogue are zero. (`components_` of scikit-learn's
        estimators is the transpose.)
    eigenvalues : (rank,)
        Noisy estimates, largest first; 0 where the noise hides them.
    unit : str
        Who is protected, in words.
    account : Statement
        What this call released, what it cost, and where its ledger stood when it ended.
    facts : Facts
        Method, noise and choices.
    catalogue : Catalogue or None
        Released popularity, and the items that were chosen by it.
    ledger : Ledger or None
        The ledger itself; a result from a file has none.
    items : names of the rows of the components, or None
    spectrum : Spectrum or None
        All eigenpairs above the noise, where they were asked for; its rows are those of the kept items.
    """

    components: Reals
    eigenvalues: Reals
    unit: str
    account: Statement = field(repr=False)
    facts: Facts = field(repr=False)
    catalogue: Catalogue | None = field(default=None, repr=False)
    ledger: Ledger | None = field(default=None, repr=False)
    items: tuple[str, ...] | None = field(default=None, repr=False)
    spectrum: Spectrum | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.components.ndim != 2 or min(self.components.shape) < 1:
            raise ValueError(f"components must be a matrix, got shape {self.components.shape}")
        if self.eigenvalues.shape != self.components.shape[1:]:
            raise ValueError("components and eigenvalues do not fit together")
        if self.items is not None and len(self.items) != len(self.components):
            raise ValueError(f"items must be the {len(self.components)} names of the columns, got {len(self.items)}")

    def __repr__(self) -> str:
        (n, rank), spent = self.components.shape, self._spent()
        promise = f"epsilon={spent.epsilon:.4g}, delta={spent.delta:g}" if self.private else "NOT PRIVATE"
        return (
            f"Result({n} items x {rank} components, {self.facts.method}, {promise},\n"
            f"       protects {self.unit},\n"
            f"       noise {self.facts.noise_std:.4g}, eigenvalues {np.array2string(self.eigenvalues[:4], precision=4)}"
            f"{' ...' if rank > 4 else ''})"
        )

    def _repr_html_(self) -> str:
        spent = self._spent()
        rows = {
            "protects": self.unit,
            "ε, δ": f"{spent.epsilon:.4g}, {spent.delta:g}" if self.private else "NOT PRIVATE",
            "basis": f"{self.components.shape[0]:,} items × {self.components.shape[1]} ({self.facts.method})",
            "noise": f"{self.facts.noise_std:.4g} per entry",
            "eigenvalues": ", ".join(f"{value:.4g}" for value in self.eigenvalues[:6]),
            "why": self.reason,
        }
        lines = (f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in rows.items() if text)
        return f"<table>{''.join(lines)}</table>"

    def _spent(self) -> Budget:
        """(ε, δ) of this call: what it was given, or what its releases add up to."""
        if self.facts.budget is not None:
            return self.facts.budget
        delta = self.account.budget.delta
        return Budget(max(epsilon_from_mu(self.account.own_mu, delta), 1e-12), delta)

    @property
    def reason(self) -> str:
        """Why things were chosen as they were, where `decompose` chose them."""
        return self.facts.reason

    @property
    def private(self) -> bool:
        """False as soon as anything was drawn from a seed (`NotPrivate`)."""
        return self.account.private

    def named(self, items: Sequence[str]) -> Self:
        """The same result with the public names of its columns."""
        return replace(self, items=tuple(str(name) for name in items))

    def with_facts(self, **changes: Any) -> Self:
        """The same result with other facts."""
        return replace(self, facts=self.facts._replace(**changes))

    def statement(self) -> dict[str, Any]:
        """The promise, for machines: who is protected, how well, by which releases, given what."""
        spent = self._spent()
        return {
            "private": self.private,
            "unit": self.unit,
            "relation": self.account.relation,
            "epsilon": spent.epsilon,
            "delta": spent.delta,
            "mu": spent.mu,
            "own_budget": self.facts.own_budget,
            "declared_public": list(self.facts.public),
            "ledger": self.account.record(),
            "versions": {name: version(name) for name in ("dpspectral", "numpy", "cryptography")},
        }

    def summary(self) -> dict[str, Any]:
        """Public facts about the run, ready for JSON."""
        return {
            "private": self.private,
            "protects": self.unit,
            "items": int(self.components.shape[0]),
            "rank": int(self.components.shape[1]),
            **self.facts.record(),
            **self._choices(),
            **({} if self.spectrum is None else {"noise_edge": self.spectrum.edge}),
            "ledger": self.account.record(),
            "eigenvalues": [float(value) for value in self.eigenvalues],
        }

    def _choices(self) -> dict[str, Any]:
        if self.catalogue is None:
            return {}
        return {
            "chosen_items": len(self.catalogue.chosen),
            "floor": self.catalogue.floor,
            "popularity_noise_std": self.catalogue.noise_std,
        }

    def save(self, path: str | os.PathLike[str], *, items: Sequence[str] | None = None, **more: Any) -> None:
        """Write it to an .npz file: all of it, or nothing.

        `items` are the public names of the columns, `more` further arrays of public facts.
        """
        if items is not None:
            return self.named(items).save(path, **more)
        if reserved := _OWN & set(more):
            raise ValueError(f"{sorted(reserved)[0]!r} is written by save itself; choose another name")
        check_writable(path)
        content = {**self._arrays(), "summary": json.dumps(self.summary()), **more}
        return write_whole(path, lambda stream: np.savez_compressed(stream, **content))

    def _arrays(self) -> dict[str, Any]:
        """What a file holds of it, apart from the summary."""
        arrays: dict[str, Any] = {"eigenvalues": self.eigenvalues}
        if self.catalogue is not None:
            arrays |= {"popularity": self.catalogue.popularity, "chosen": self.catalogue.chosen}
        if self.catalogue is not None and self._others_are_zero(self.catalogue):
            arrays["kept_components"] = self.components[self.catalogue.chosen]
        else:
            arrays["components"] = self.components
        if self.items is not None:
            arrays["item_names"] = _packed(self.items)
        if self.spectrum is not None:
            arrays |= {"spectrum_vectors": self.spectrum.vectors, "spectrum_values": self.spectrum.values}
            if self.spectrum.diagonal is not None:
                arrays["spectrum_diagonal"] = self.spectrum.diagonal
        return arrays

    def _others_are_zero(self, catalogue: Catalogue) -> bool:
        """Whether the catalogue kept fewer than all items; the others' rows are then zero, unless somebody set them."""
        outside: NDArray[np.bool_] = np.any(self.components, axis=1)
        outside[catalogue.chosen] = False
        return len(catalogue.chosen) < len(self.components) and not outside.any()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """What `save` wrote, also with version 0.1; ValueError about any other file."""
        return read_basis(path)[0]


def read_basis(path: str | os.PathLike[str]) -> tuple[Result, dict[str, NDArray[Any]]]:
    """A result, and the further arrays in its file. The file may come from anybody: it is checked first."""
    try:
        arrays = read_arrays(path)
        summary = json.loads(str(arrays.pop("summary")))
        n, eigenvalues = int(summary["items"]), _finite(arrays, "eigenvalues")
        catalogue = _catalogue(summary, arrays, n)
        components = _components(arrays, n, catalogue)
        if components.shape != (n, int(summary["rank"])):
            raise ValueError("its arrays do not fit its summary")
        result = Result(
            components, eigenvalues, str(summary["protects"]), Statement.of_record(summary["ledger"]),
            Facts.of_record(summary), catalogue, items=_names(arrays),
            spectrum=_spectrum(summary, arrays, n if catalogue is None else len(catalogue.chosen)),
        )  # fmt: skip
        if left := sorted(_OWN & set(arrays)):
            raise ValueError(f"its {left[0]} do not go with its other arrays")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file; save() or dpspectral fit ... --out makes one") from None
    except (*UNREADABLE, ZeroDivisionError) as error:
        raise ValueError(f"{path}: not a basis that dpspectral saved ({error or type(error).__name__})") from error
    return result, arrays


def _finite(arrays: dict[str, NDArray[Any]], name: str) -> Reals:
    """Take the numbers of this name out of a file's arrays."""
    values = arrays.pop(name)
    if values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        raise ValueError(f"its {name} are not finite numbers")
    return values.astype(np.float64)


def _components(arrays: dict[str, NDArray[Any]], n: int, catalogue: Catalogue | None) -> Reals:
    """The rows of all items; where a file has those of the kept ones, zero elsewhere."""
    if "kept_components" not in arrays:
        return _finite(arrays, "components")
    if catalogue is None:
        raise ValueError("it does not say which items were kept")
    rows = _finite(arrays, "kept_components")
    if rows.ndim != 2 or not len(rows) == len(catalogue.chosen) >= rows.shape[1]:
        raise ValueError("its components do not fit its chosen items")
    free, needed = available_memory(), 8 * n * rows.shape[1]
    if free is not None and needed > free:  # a small file may stand for many zeros
        raise MemoryError(f"its components take {needed / GIB:.2f} GiB of memory, {free / GIB:.2f} GiB are available")
    return catalogue.spread(rows)


def _packed(names: Sequence[str]) -> NDArray[np.uint8]:
    """Names as the bytes of a JSON list: an array of text would give each of them the width of the longest, times 4."""
    text = json.dumps(list(names), ensure_ascii=False, separators=(",", ":"))
    return np.frombuffer(text.encode(errors="surrogatepass"), dtype=np.uint8)


def _names(arrays: dict[str, NDArray[Any]]) -> tuple[str, ...] | None:
    """Take the names of the items out of a file's arrays, as text or as `_packed` made them."""
    if "item_names" not in arrays:
        return tuple(str(name) for name in arrays.pop("items")) if "items" in arrays else None
    packed = arrays.pop("item_names")
    names = json.loads(packed.tobytes().decode(errors="surrogatepass")) if packed.dtype == np.uint8 else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("its item_names are not a list of text")
    return tuple(names)


def _spectrum(summary: Mapping[str, Any], arrays: dict[str, NDArray[Any]], kept: int) -> Spectrum | None:
    if "spectrum_vectors" not in arrays:
        return None
    vectors, values = _finite(arrays, "spectrum_vectors"), _finite(arrays, "spectrum_values")
    diagonal = _finite(arrays, "spectrum_diagonal") if "spectrum_diagonal" in arrays else None
    if values.ndim != 1 or vectors.shape != (kept, len(values)) or (values <= 0).any():
        raise ValueError("its spectrum does not fit its chosen items")
    if diagonal is not None and diagonal.shape != (kept,):
        raise ValueError("its spectrum_diagonal does not fit its chosen items")
    return Spectrum(
        vectors.astype(np.float32), values, diagonal, checks.real("noise_edge", summary["noise_edge"], low=0)
    )


def _catalogue(summary: Mapping[str, Any], arrays: dict[str, NDArray[Any]], n: int) -> Catalogue | None:
    if "popularity" not in arrays:
        return None
    popularity, chosen = _finite(arrays, "popularity"), arrays.pop("chosen")
    if popularity.shape != (n,):
        raise ValueError("its popularity does not fit its items")
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or not 1 <= len(chosen) <= n:
        raise ValueError("its chosen items are not positions")
    if chosen[0] < 0 or chosen[-1] >= n or (chosen[1:] <= chosen[:-1]).any():
        raise ValueError("its chosen items are not increasing positions of its items")
    floor = summary.get("floor")
    checks.optional_integer("floor", floor, low=1)
    noise = checks.real("popularity_noise_std", summary["popularity_noise_std"])
    return Catalogue(popularity, chosen.astype(np.int64), noise, floor)
