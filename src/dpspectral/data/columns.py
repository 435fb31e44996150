"""Names of columns: what a header, or the schema of a Parquet file, may call users, items and ratings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

# Compared in lower case, without "_", "-" and blanks.
_NAMES = {
    "user": ("user", "userid", "uid", "customer", "customerid", "person", "personid", "reviewer", "reviewerid"),
    "item": ("item", "itemid", "iid", "movie", "movieid", "product", "productid", "artist", "artistid", "book",
             "bookid", "song", "songid", "track", "trackid", "isbn", "asin", "sku"),
    "rating": ("rating", "score", "stars", "value"),
    "not used": ("time", "timestamp", "date", "datetime", "ts", "modified", "weight"),
}  # fmt: skip
_ROLES = {name: role for role, names in _NAMES.items() for name in names}
_TYPES = ("token", "float", "token_seq", "float_seq")  # RecBole writes user_id:token
_MARKS = str.maketrans("", "", "_- ")


@lru_cache(maxsize=1 << 16)
def role_of(name: str) -> str | None:
    """ "user", "item", "rating", "not used", or None for a name that is not known."""
    word, _, kind = name.strip().lower().partition(":")
    return _ROLES.get(word.translate(_MARKS)) if kind in ("", *_TYPES) else None


def is_header(fields: Sequence[str]) -> bool:
    """Whether a line consists of known names only, with exactly one user and one item among them."""
    roles = [role_of(field) for field in fields]
    return None not in roles and roles.count("user") == roles.count("item") == 1 and roles.count("rating") <= 1


def places(names: Sequence[str]) -> dict[str, int]:
    """The columns of users, items and (if any) ratings; ValueError with the reason where they are ambiguous."""
    roles = [role_of(name) for name in names]
    chosen = {}
    for role in ("user", "item", "rating"):
        if roles.count(role) == 1:
            chosen[role] = roles.index(role)
        elif roles.count(role) or role != "rating":
            what = "more than one" if roles.count(role) else "no"
            raise ValueError(f"{what} column of {role}s among {list(names)}")
    return chosen


def known() -> str:
    """The known names, as text."""
    return "; ".join(f"{role}: {', '.join(names)}" for role, names in _NAMES.items())
