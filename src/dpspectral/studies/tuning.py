"""Search of a method's settings on other seeds than are reported. Not private: what it finds is given for free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

Options = TypeVar("Options")
Ladder = tuple[Any, ...]  # values of one choice, in order


def climb(start: Options, ladders: Mapping[str, Ladder], worth: Callable[[Options], float], most: int) -> Options:
    """The best of at most `most` options that are tried.

    One choice after the other moves along its ladder, up and then down, as long as that improves; rounds over all
    choices are repeated until one changes nothing.
    """
    if missing := [name for name, ladder in ladders.items() if getattr(start, name) not in ladder]:
        raise ValueError(f"the start must lie on every ladder; {', '.join(missing)} does not: add its value")
    tried = {start: worth(start)}
    best = start
    improved = True
    while improved:
        improved = False
        for name, ladder in ladders.items():
            for direction in (1, -1):
                while True:
                    place = ladder.index(getattr(best, name)) + direction
                    if not 0 <= place < len(ladder):
                        break
                    other = replace(best, **{name: ladder[place]})  # type: ignore[type-var]
                    if other not in tried:
                        if len(tried) == most:
                            return best
                        tried[other] = worth(other)
                    if tried[other] <= tried[best]:
                        break
                    best, improved = other, True
    return best
