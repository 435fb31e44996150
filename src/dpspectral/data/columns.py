"""Names of columns: what a header, the schema of a Parquet file or a frame calls users, items, ratings and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache

ROLES = ("user", "item", "rating", "time")
# Compared in lower case, without "_", "-" and blanks.
_NAMES = {
    "user": ("user", "userid", "uid", "customer", "customerid", "person", "personid", "reviewer", "reviewerid"),
    "item": ("item", "itemid", "iid", "movie", "movieid", "product", "productid", "artist", "artistid", "book",
             "bookid", "song", "songid", "track", "trackid", "isbn", "asin", "sku"),
    "rating": ("rating", "score", "stars", "value"),
    "time": ("time", "timestamp", "date", "datetime", "ts", "modified"),
    "not used": ("weight",),
}  # fmt: skip
_ROLES = {name: role for role, names in _NAMES.items() for name in names}
_TYPES = ("token", "float", "token_seq", "float_seq")  # RecBole writes user_id:token
_MARKS = str.maketrans("", "", "_- ")
IDENTIFIERS = (*_NAMES["user"], *_NAMES["item"])


@lru_cache(maxsize=1 << 16)
def role_of(name: str) -> str | None:
    """ "user", "item", "rating", "time", "not used", or None for a name that is not known."""
    if not name.isascii():
        return None
    word, _, kind = name.lower().partition(":")
    return _ROLES.get(word.translate(_MARKS)) if kind.strip() in ("", *_TYPES) else None


def names_users_and_items(fields: Sequence[str]) -> bool:
    """Whether exactly one column of users and one of items are among the names."""
    roles = [role_of(field) for field in fields]
    return roles.count("user") == roles.count("item") == 1


def places(names: Sequence[str], given: Mapping[str, str | None] | None = None) -> dict[str, int]:
    """The columns of users, items and (if any) ratings and times; ValueError with the reason where it is not clear.

    `given` says what a column is called; other roles are found by their usual names.
    """
    chosen: dict[str, int] = {}
    given = given or {}
    if role_of(given.get("user") or "") == "item" and role_of(given.get("item") or "") == "user":
        raise ValueError(f"user={given['user']!r} and item={given['item']!r} look exchanged: the items become public")
    taken = {name for name in given.values() if name is not None}
    for role in ROLES:
        name = given.get(role)
        if name is not None:
            at = [k for k, column in enumerate(names) if column == name]
            at = at or [k for k, column in enumerate(names) if column.strip() == name.strip()]
            if len(at) != 1:
                raise ValueError(
                    f"{'more than one' if at else 'no'} column {name!r} among {_listed(names)}{_similar(name, names)}"
                )
        else:
            at = [k for k, column in enumerate(names) if column not in taken and role_of(column) == role]
            if role in ("user", "item") and not at:
                raise ValueError(f"no column of {role}s among {_listed(names)}; name it with {_option(role)}")
            if role != "time" and len(at) > 1:
                raise ValueError(f"more than one column of {role}s among {_listed(names)}; choose with {_option(role)}")
        if len(at) == 1:
            chosen[role] = at[0]
    if len(set(chosen.values())) < len(chosen):
        raise ValueError(f"one column has two roles: { ({role: names[k] for role, k in chosen.items()}) }")
    return chosen


def _listed(names: Sequence[str]) -> str:
    return f"{list(names[:12])}" + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _similar(name: str, names: Sequence[str]) -> str:
    close = get_close_matches(name.lower(), [one.lower() for one in names], 1)
    return f"; did you mean {next(one for one in names if one.lower() == close[0])!r}?" if close else ""


def _option(role: str) -> str:
    return f"{role}= (--{role})"
