"""Public facts about items as similarities: numbers, categories, sets and words to one row of figures for each item.

Facts are declared public by whoever passes them. Nothing here sees interactions: what a fact becomes depends on the
facts alone, and the same facts always become the same figures.

| column | becomes |
|---|---|
| numbers | how close to each of (at most) 8 quantiles, linear in between: close numbers are alike |
| truth values | one figure |
| lists, sets, or text with "|" between labels | a figure for each label, rare ones weighing more |
| text, less than half of the values distinct: a category | a figure for each |
| other text | its words, as labels |

Each column is scaled to rows of length 1 (0 where the fact is missing), more than 64 labels are reduced to 64 figures
by a singular value decomposition, and the columns together are scaled to rows of length 1 again. The inner product of
two rows is the similarity of two items.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import NDArray

from dpspectral.data import identity
from dpspectral.data.frames import is_frame

Reals = NDArray[np.float64]
PUBLIC = "facts about the items (item_features)"  # as the promise names them
ITEM = "item"  # the column of a frame that names the items
_KNOTS = 8
_MOST = 64  # figures of a column
_WORD = re.compile(r"\w+")


class Encoded(NamedTuple):
    """A row for each item of the model, and for items that came after its fit."""

    rows: NDArray[np.float32]  # (items, figures); of length 1, or 0 where nothing is known
    names: tuple[str, ...] | None  # of all items


def encoded(features: Any, names: Sequence[str] | None, n: int) -> Encoded:
    """Facts in the order of the model's n items; what is about others follows.

    `features` is a frame or a table of columns with a column "item" of names, or, without one (and for matrices), with
    a row for each item of the model, in its order, and perhaps more.
    """
    if sp.issparse(features) or isinstance(features, np.ndarray):
        rows, own = _figures({"": features}), None
    else:
        columns = _columns(features)
        own = columns.pop(ITEM, None)
        if not columns:
            raise ValueError(f"item_features must have columns besides {ITEM!r}, got none")
        rows = _figures(columns)
    if own is None:
        if len(rows) < n:
            raise ValueError(
                f"item_features must have a row for each of the {n} items, in their order, or a column {ITEM!r} of "
                f"names; got {len(rows)} rows"
            )
        more = None if names is None else (*names, *(f"new item {k}" for k in range(len(rows) - n)))
        return Encoded(rows, more)
    texts = identity.texts(list(own), "item")
    known = list(map(str, range(n))) if names is None else list(names)
    place = {name: k for k, name in enumerate(known)}
    if len(set(texts)) < len(texts):
        twice = next(name for name, count in Counter(texts).items() if count > 1)
        raise ValueError(f"item_features has two rows for item {twice!r}: pass one for each item")
    new = [name for name in texts if name not in place]
    place |= {name: n + k for k, name in enumerate(new)}
    ordered = np.zeros((n + len(new), rows.shape[1]), dtype=np.float32)
    ordered[[place[name] for name in texts]] = rows
    return Encoded(ordered, tuple(known + new) if names is not None or new else None)


def _columns(features: Any) -> dict[str, Any]:
    if is_frame(features):
        frame = nw.from_native(features)
        frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
        return {str(name): frame[name].to_list() for name in frame.columns}
    if isinstance(features, Mapping):
        columns = {str(name): values for name, values in features.items()}
        if len({len(values) for values in columns.values()}) == 1:
            return columns
        raise ValueError("item_features: columns must have the same length, one entry for each item")
    raise TypeError(f"item_features must be a frame, a table of columns or a matrix, got {type(features).__name__}")


def _figures(columns: Mapping[str, Any]) -> NDArray[np.float32]:
    """All columns side by side, rows of length 1."""
    blocks = [_unit(_column(name, values)) for name, values in columns.items()]
    return _unit(np.hstack(blocks)).astype(np.float32)


def _column(name: str, values: Any) -> Reals:
    if sp.issparse(values) or (isinstance(values, np.ndarray) and values.ndim == 2):
        return _matrix(name, values)
    listed = [None if _missing(value) else value for value in values]
    present = [value for value in listed if value is not None]
    if all(isinstance(value, (bool, np.bool_)) for value in present):
        return np.array([[float(value or 0)] for value in listed])
    if all(isinstance(value, (int, float, np.number)) for value in present):
        return _numbers(np.array([np.nan if value is None else float(value) for value in listed]))
    if all(isinstance(value, str) for value in present):
        return _labels([[] if value is None else part for value, part in zip(listed, _split(listed), strict=True)])
    if all(isinstance(value, (list, tuple, set, frozenset, np.ndarray)) for value in present):
        return _labels([[] if value is None else [str(label) for label in value] for value in listed])
    kinds = sorted({type(value).__name__ for value in present})
    raise TypeError(f"item_features[{name!r}] must be numbers, text or lists of labels, got {', '.join(kinds)}")


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, (float, np.floating)) and not np.isfinite(value))


def _split(values: list[str | None]) -> list[list[str]]:
    """Labels of texts: separated by "|"; the text itself, where texts repeat; else its words."""
    present = [value for value in values if value is not None]
    if any("|" in value for value in present):
        return [[label.strip() for label in (value or "").split("|") if label.strip()] for value in values]
    if len(set(present)) * 2 <= len(present):
        return [[value or ""] for value in values]
    return [_WORD.findall((value or "").lower()) for value in values]


def _matrix(name: str, values: Any) -> Reals:
    found = sp.csr_array(values) if sp.issparse(values) else np.asarray(values)
    if found.dtype.kind not in "biuf" or not np.isfinite(found.data if sp.issparse(found) else found).all():
        raise ValueError(f"item_features{f'[{name!r}]' if name else ''} must be finite numbers")
    return _reduced(sp.csr_array(found.astype(np.float64)))


def _numbers(values: Reals) -> Reals:
    """Linear interpolation between quantiles of the column."""
    known = np.isfinite(values)
    if not known.any():
        return np.zeros((len(values), 1))
    count = min(_KNOTS, max(2, len(np.unique(values[known])) // 4))  # neighbours must share a pair of them
    knots = np.unique(np.quantile(values[known], np.linspace(0, 1, count)))
    figures = np.stack([np.interp(values, knots, one) for one in np.eye(len(knots))], axis=1)
    figures[~known] = 0
    return figures


def _labels(lists: list[list[str]]) -> Reals:
    """A figure for each label that two items have, weighted by the logarithm of its rarity."""
    counts = Counter(label for labels in lists for label in set(labels))
    shared = sorted(label for label, count in counts.items() if count > 1)
    column = {label: k for k, label in enumerate(shared)}
    pairs = [(row, column[label]) for row, labels in enumerate(lists) for label in set(labels) if label in column]
    rows, columns = (np.array(side, dtype=np.int64) for side in (zip(*pairs, strict=True) if pairs else ((), ())))
    weights = np.log(1 + len(lists) / np.array([counts[label] for label in shared], dtype=np.float64))
    return _reduced(sp.csr_array((weights[columns], (rows, columns)), shape=(len(lists), max(1, len(shared)))))


def _reduced(figures: sp.csr_array) -> Reals:
    """At most 64 columns with nearly the same inner products of rows of length 1."""
    lengths = np.sqrt(np.asarray(figures.multiply(figures).sum(axis=1)).ravel())
    scaled = sp.csr_array(sp.diags_array(1 / np.where(lengths > 0, lengths, 1.0)) @ figures)
    if scaled.shape[1] <= _MOST or min(scaled.shape) <= _MOST + 1:
        return np.asarray(scaled.toarray())
    start = np.random.default_rng(0).standard_normal(min(scaled.shape))
    left, values, _ = scipy.sparse.linalg.svds(scaled, k=_MOST, v0=start)
    return np.asarray(left * values)


def _unit(rows: Reals) -> Reals:
    """Rows of length 1; those that are 0 stay."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Reals = rows / np.where(lengths > 1e-12, lengths, 1.0)
    return scaled


def saved_facts(facts: Encoded, n: int) -> dict[str, Any]:
    """Arrays for a file: the figures, and names of the items that came after the fit."""
    new = [] if facts.names is None else list(facts.names[n:])
    return {"item_features": facts.rows, "new_items": json.dumps(new)}


def loaded_facts(path: Any, arrays: Mapping[str, NDArray[Any]], names: Sequence[str] | None, n: int) -> Encoded | None:
    """What `saved_facts` wrote; ValueError about anything else."""
    if "item_features" not in arrays:
        return None
    rows = arrays["item_features"]
    try:
        new = json.loads(str(arrays["new_items"]))
        if rows.ndim != 2 or rows.dtype != np.float32 or not np.isfinite(rows).all() or len(rows) < n:
            raise ValueError("item_features are not figures of its items")
        if not isinstance(new, list) or not all(isinstance(name, str) for name in new) or n + len(new) > len(rows):
            raise ValueError("new_items are not names")
        if (names is not None or new) and n + len(new) < len(rows):
            raise ValueError("new_items do not fit its item_features")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: not a recommender that dpspectral saved ({error})") from error
    known = list(map(str, range(n))) if names is None else list(names)
    return Encoded(rows, (*known, *new) if names is not None or new else None)
