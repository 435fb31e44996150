"""A query as bytes: what a party is asked, complete enough that it can check and compute everything itself.

A header in JSON, then arrays. Sensitivity, grid, ring width and the number of noise shares are not part of it: whoever
reads the question derives them from the query and from the setup it takes part in, and relies on no one else's numbers.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpspectral.core import checks
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.iterate import Iterate
from dpspectral.privacy.ledger import Release
from dpspectral.privacy.units import BoundedRows, Interaction, Unit, User
from dpspectral.protocols.common import ring
from dpspectral.release.clipping import ClippedProduct, ContributionLengths
from dpspectral.release.coverage import Coverage
from dpspectral.release.queries import ItemMatrix, Popularity, Product, Query, RootDegrees, RowSum, Users

_QUERIES = {kind.__name__: kind for kind in (Popularity, RootDegrees, Users, RowSum, ItemMatrix, Coverage)}
_OF_X: dict[str, Any] = {kind.__name__: kind for kind in (Product, ClippedProduct, ContributionLengths)}
_UNITS = {kind.__name__: kind for kind in (Interaction, User, BoundedRows)}
_MOST = 1 << 33  # bytes
_LONGEST_LABEL = 200
_LONGEST_HEADER = 1 << 14  # bytes: a label, a unit and the shapes of two arrays


class Shares(Protocol):
    """What everybody knows about the noise of a run before its first question."""

    @property
    def parties(self) -> int:
        """So many add a share."""

    @property
    def noise_shares(self) -> int:
        """H of the share lemma: the noise counts as the sum of so many shares."""

    @property
    def share_variance(self) -> float:
        """Of one share, as a part of σ²."""

    @property
    def collusion(self) -> int:
        """So many may pool what they know."""

    @property
    def rounds(self) -> int:
        """So many questions at most."""

    def __hash__(self) -> int: ...


class Terms(NamedTuple):
    """What everybody derives from a question and the setup."""

    release: Release  # what a party writes into its ledger
    share_deviation: float  # of each party's noise
    size: int  # how many numbers,
    bits: int  # and how wide the ring is


@dataclass(frozen=True)
class Question:
    """A query, what it may cost, and the public facts that noise and width are made of."""

    what: str
    query: Query
    mu: float
    budget: Budget  # of the whole run
    setup: Shares
    users: int  # at most so many in all
    columns: NDArray[np.int64] | None = None  # the items that count, if not all

    @cached_property
    def terms(self) -> Terms:
        """What follows from it. Not worked out before a party has agreed to the question: this may take long."""
        release, size = self.query.entry(self.what, self.mu), math.prod(self.query.shape)
        deviation = release.sigma * math.sqrt(self.setup.share_variance)
        bits = ring.width(self.query.largest(self.users), deviation, self.setup.parties)
        return Terms(release, deviation, size, bits)

    def encode(self) -> bytes:
        query = self.query
        header: dict[str, Any] = {
            "what": self.what, "query": type(query).__name__, "mu": self.mu, "users": self.users,
            "budget": [self.budget.epsilon, self.budget.delta],
            "unit": type(query.unit).__name__,
            "of": {one.name: getattr(query.unit, one.name) for one in fields(query.unit)},  # type: ignore[arg-type]
        }  # fmt: skip
        arrays: dict[str, NDArray[Any]] = {}
        if self.columns is not None:
            arrays["columns"] = self.columns.astype("<i8")
        if isinstance(query, (Product, ContributionLengths)):
            header |= {"bits": query.X.bits, "loss": query.loss}
            wide = query.X.integers.dtype == np.int64
            arrays["X"] = query.X.integers.astype("<i8" if wide else "<i4")
            if isinstance(query, ClippedProduct):
                header["limit"] = query.limit
            if isinstance(query, Product) and query.centre is not None:
                raise ValueError("a centre is subtracted by a curator only")
        else:
            header["n"] = query.n  # type: ignore[attr-defined]
            if isinstance(query, RowSum):
                header["counted"] = query.counted
            if isinstance(query, Coverage):
                arrays["kept"] = query.kept.astype("<i8")
        header["arrays"] = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
        text = json.dumps(header, sort_keys=True).encode()
        return struct.pack(">I", len(text)) + text + b"".join(array.tobytes() for array in arrays.values())


def largest(n: int, columns: int) -> int:
    """Bytes of the largest question about n items: all of them listed, and an X of so many columns."""
    return 4 + _LONGEST_HEADER + 8 * n + 8 * n * min(columns, n)


@lru_cache(maxsize=4)
def decode(content: bytes, setup: Shares) -> Question:
    """The question, if it is one in every respect. (Cached: parties in one process read the same bytes.)"""
    try:
        return _decode(content, setup)
    except (KeyError, TypeError, ValueError, struct.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a question: {error}") from error


def _decode(content: bytes, setup: Shares) -> Question:
    (length,) = struct.unpack_from(">I", content)
    if length > _LONGEST_HEADER:
        raise ValueError(f"its header has {length} bytes, at most {_LONGEST_HEADER} are read")
    header = json.loads(content[4 : 4 + length])
    if not isinstance(header, dict):
        raise ValueError("its header is not a table")
    arrays = _arrays(header["arrays"], memoryview(content)[4 + length :])
    unit: Unit = _UNITS[header["unit"]](**header["of"])
    shares = setup.noise_shares
    query: Query
    if header["query"] in _OF_X:
        X = arrays.pop("X")
        iterate = Iterate.of_integers(X, checks.integer("bits", header["bits"], low=1, high=52))
        loss = checks.real("loss", header["loss"], low=0, high=1)
        query = _OF_X[header["query"]](unit, iterate, loss, noise_shares=shares)
        if isinstance(query, ClippedProduct):
            query = replace(query, limit=checks.integer("limit", header["limit"], low=1, high=1 << 31))
    else:
        n = checks.integer("n", header["n"], low=1, high=1 << 31)
        extra: dict[str, Any] = {}
        if header["query"] == "RowSum":
            extra["counted"] = checks.flag("counted", header["counted"])
        elif header["query"] == "Coverage":
            extra["kept"] = _positions("kept", arrays.pop("kept"))
            if extra["kept"].max(initial=0) >= n:
                raise ValueError("kept must be positions of items")
        query = _QUERIES[header["query"]](unit, n, **extra, noise_shares=shares)
    columns = arrays.pop("columns", None)
    if columns is not None:
        columns = _positions("columns", columns)
    if arrays:
        raise ValueError(f"unknown arrays {sorted(arrays)}")
    budget = Budget(*header["budget"])
    mu = checks.real("mu", header["mu"], low=0)
    users = checks.integer("users", header["users"], low=1)
    what = header["what"]
    if not isinstance(what, str) or len(what) > _LONGEST_LABEL or not what.isprintable():  # it goes into ledgers
        raise ValueError(f"its label must be printable text of at most {_LONGEST_LABEL} letters")
    return Question(what, query, mu, budget, setup, users, columns)


def _positions(name: str, given: NDArray[Any]) -> NDArray[Any]:
    if given.ndim != 1 or (np.diff(given) <= 0).any() or given.min(initial=0) < 0:
        raise ValueError(f"{name} must be increasing positions")
    return given


def _arrays(described: Any, content: memoryview) -> dict[str, NDArray[Any]]:
    arrays, start = {}, 0
    for name, kind, shape in described:
        if kind not in ("<i4", "<i8") or name in arrays or not all(type(k) is int and k >= 0 for k in shape):
            raise ValueError("an array of an unknown kind")
        size = int(np.prod(shape, dtype=object)) * np.dtype(kind).itemsize
        if size > _MOST or start + size > len(content):
            raise ValueError("an array is cut off")
        array = np.frombuffer(content[start : start + size], dtype=kind).reshape(shape)
        array.setflags(write=False)
        arrays[name] = array
        start += size
    if start != len(content):
        raise ValueError("bytes are left over")
    return arrays
