"""Whether steps before a private estimator look across rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

_WORDLESS = ("passthrough", "drop", None)


def check_pipeline(pipe: Any, *, error: bool = False) -> list[str]:
    """Names of steps before a private estimator that are fitted on the data: with them no bound holds.

    Such a step (a scaler, an imputer, a feature selection) lets one row change all others before they are protected.
    Steps of this package, and steps that need no fit (`FunctionTransformer`, `Normalizer`), are fine: what they make of
    a row depends on that row and on released or public numbers. `FunctionTransformer` is taken at its word.
    `pipe` may be wrapped, in a `GridSearchCV` for instance. With `error=True` a ValueError names the steps.
    """
    if not hasattr(pipe, "get_params") or isinstance(pipe, type):
        raise TypeError(f"pipe must be a Pipeline, or an estimator that holds one, got {type(pipe).__name__}")
    named = [name for name, private in _before(pipe, "") if not private]
    if named and error:
        raise ValueError(
            f"fitted on the data before a private step: {', '.join(named)}. Use public bounds, PrivateStandardScaler, "
            "or constants that do not come from the data"
        )
    return named


def _before(pipe: Any, prefix: str) -> Iterator[tuple[str, bool]]:
    """(name, whether it is harmless) of every step that comes before a private one."""
    if not isinstance(pipe, Pipeline):
        for name, part in _parts(pipe) or _wrapped(pipe):
            yield from _before(part, f"{prefix}{name}.")
        return
    last = max((k for k, (_, step) in enumerate(pipe.steps) if _holds_private(step)), default=-1)
    for k, (name, step) in enumerate(pipe.steps[: last + 1]):
        if k < last:
            yield from _leaves(step, f"{prefix}{name}")
        if k == last or _holds_private(step):
            yield from _before(step, f"{prefix}{name}.")


def _parts(step: Any) -> list[tuple[str, Any]]:
    """The named parts of a step that is made of others."""
    if isinstance(step, Pipeline):
        return list(step.steps)
    if isinstance(step, ColumnTransformer):
        rest = [("remainder", step.remainder)] if not isinstance(step.remainder, str) else []
        return [(name, part) for name, part, _ in step.transformers] + rest
    if isinstance(step, FeatureUnion):
        return list(step.transformer_list)
    return []


def _wrapped(step: Any) -> list[tuple[str, Any]]:
    """The estimators among the parameters of another, a search or an ensemble."""
    if not hasattr(step, "get_params") or isinstance(step, type):
        return []
    found: list[tuple[str, Any]] = []
    for name, value in step.get_params(deep=False).items():
        listed = value if isinstance(value, list) else [(name, value)]
        pairs = [pair for pair in listed if isinstance(pair, tuple) and len(pair) == 2]
        found += [(str(inner), part) for inner, part in pairs if hasattr(part, "fit") and not isinstance(part, type)]
    return found


def _leaves(step: Any, name: str) -> Iterator[tuple[str, bool]]:
    if isinstance(step, str) or step in _WORDLESS:
        return
    parts = _parts(step)
    for inner, part in parts:
        yield from _leaves(part, f"{name}.{inner}")
    if not parts:
        yield name, _is_private(step) or not _is_fitted(step)


def _is_private(step: Any) -> bool:
    return type(step).__module__.partition(".")[0] == "dpspectral"


def _holds_private(step: Any) -> bool:
    return _is_private(step) or any(_holds_private(part) for _, part in _parts(step) or _wrapped(step))


def _is_fitted(step: Any) -> bool:
    """Whether a step learns from the data; one that does not say so is taken to."""
    try:
        return bool(get_tags(step).requires_fit)
    except (AttributeError, TypeError):
        return True
