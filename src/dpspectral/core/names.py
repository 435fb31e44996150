"""Names that options accept, kept apart from the code they select: the command line lists them without loading it."""

from __future__ import annotations

READING = ("min_rating", "header", "format", "delimiter")  # options of how a data file is read
FORMATS = ("pairs", "lists", "ratings")  # of text files
DELIMITERS = (",", "comma", "tab", "::", "blanks")  # of text files
FILTERS = ("gf-cf", "bspm")  # of the recommender
PARTS = ("table1", "table2", "figure1", "figure2", "figure3", "frontier", "holders")  # of the reproduction
CURVES = (
    "central", "decentralised", "balcan", "balcan-public", "fedpower",
    "central-exact", "balcan-exact", "balcan-public-exact", "fedpower-exact",
    "no-root-two", "floor", "oversampled", "catalogue", "dense",
    "automatic-power", "automatic-parties", "automatic-dense", "automatic-users",
)  # fmt: skip
MECHANISMS = ("power", "catalogue", "dense", "secure-sum", "peers")  # that the audit attacks
