"""A recommender's file: what was released, the choices, and what was declared; all of it checked when it is read."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpspectral.core import checks
from dpspectral.core.names import FILTERS
from dpspectral.methods.result import Result, read_basis
from dpspectral.models.item_features import Encoded, loaded_facts, saved_facts

Reals = NDArray[np.float64]


class Saved(NamedTuple):
    """What a file holds."""

    result: Result
    degrees: Reals | None  # declared ones; None: the released popularity serves
    facts: Encoded | None
    choices: dict[str, Any]  # filter and alpha; none in files of `dpspectral fit`


def write_model(path: str | os.PathLike[str], model: Saved, items: list[str] | None = None) -> None:
    """`items`: other names of the items, or those of a model without names."""
    result = model.result
    more: dict[str, Any] = {} if model.degrees is None else {"degrees": model.degrees}
    if items is not None:
        result = replace(result, items=tuple(str(name) for name in items))
    if model.facts is not None:
        more |= saved_facts(model.facts, len(result.components))
    result.save(path, recommender=json.dumps(model.choices), **more)


def read_model(path: str | os.PathLike[str]) -> Saved:
    """A file of `write_model`, or of a fit with a catalogue."""
    result, arrays = read_basis(path)
    degrees, choices = _degrees(path, result, arrays), _choices(path, arrays)
    return Saved(result, degrees, loaded_facts(path, arrays, result.items, len(result.components)), choices)


def _degrees(path: str | os.PathLike[str], result: Result, arrays: dict[str, NDArray[Any]]) -> Reals | None:
    """Declared degrees in a file; None where the popularity serves."""
    if "degrees" not in arrays:
        if result.catalogue is None:
            raise ValueError(
                f"{path}: the file has no item degrees; fit with a catalogue (--catalogue auto), or with "
                "PrivateRecommender(degrees=...)"
            )
        return None
    degrees = arrays["degrees"]
    if degrees.shape != (len(result.components),) or degrees.dtype.kind not in "biuf" or not np.isfinite(degrees).all():
        raise ValueError(f"{path}: arrays do not fit together; not a basis written by dpspectral")
    return np.maximum(degrees.astype(np.float64), 1.0)


def _choices(path: str | os.PathLike[str], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Filter and alpha as `save` wrote them; none in other files."""
    if "recommender" not in arrays:
        return {}
    try:
        saved = json.loads(str(arrays["recommender"]))
        checks.choice("filter", saved["filter"], FILTERS)
        checks.real("alpha", saved["alpha"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path}: not a recommender that dpspectral saved ({error})") from error
    return {"filter": saved["filter"], "alpha": saved["alpha"]}


def declared_degrees(degrees: ArrayLike, n: int) -> Reals:
    """Degrees that the caller declares public, at least 1."""
    declared = np.asarray(degrees, dtype=np.float64)
    if declared.shape != (n,) or not np.isfinite(declared).all() or (declared < 0).any():
        raise ValueError(
            f"degrees must be {n} finite numbers of at least 0, one for each item, got shape {declared.shape}"
        )
    return np.maximum(declared, 1.0)
