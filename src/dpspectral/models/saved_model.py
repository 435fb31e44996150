"""What a recommender is given besides a result, checked: declared degrees, and the choices in a saved file."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpspectral.core import checks
from dpspectral.core.names import FILTERS
from dpspectral.methods.result import Result

Reals = NDArray[np.float64]


def degrees_of(path: str | os.PathLike[str], result: Result, arrays: dict[str, NDArray[Any]]) -> Reals | None:
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


def choices_of(path: str | os.PathLike[str], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
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
