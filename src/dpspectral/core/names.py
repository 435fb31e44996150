"""Names that options accept, kept apart from the code they select: the command line lists them without loading it."""

from __future__ import annotations

READING = (
    "user", "item", "rating", "time", "min_rating", "since", "until", "header", "format", "delimiter", "bad_lines",
    "unknown_items",
)  # options of how records are read  # fmt: skip
FORMATS = ("pairs", "lists", "ratings", "json-lines")  # of text files
DELIMITERS = (",", "comma", "tab", ";", "semicolon", "|", "pipe", "::", "blanks")  # of text files
BAD_LINES = ("error", "skip")
UNKNOWN_ITEMS = ("error", "drop")
FILTERS = ("ease", "gf-cf", "bspm")  # of the recommender
PARTS = (
    "table1", "table2", "figure1", "figure2", "figure3", "frontier", "holders", "recommenders",
)  # of the reproduction  # fmt: skip
CURVES = (
    "central", "decentralised", "balcan", "balcan-public", "fedpower",
    "central-exact", "balcan-exact", "balcan-public-exact", "fedpower-exact",
    "no-root-two", "floor", "oversampled", "catalogue", "dense",
    "automatic-power", "automatic-parties", "automatic-dense", "automatic-users",
)  # fmt: skip
MECHANISMS = (
    "power", "catalogue", "dense", "secure-sum", "peers", "groups", "quantiles", "coverage", "evaluation", "clipping",
    "stream",
)  # that the audit attacks  # fmt: skip
