"""The page of a private basis.

It is made from the released file alone (`Result.save`), so whoever may see the file may see the page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpspectral.files import UNREADABLE, read_arrays
from dpspectral.privacy.budget import Budget
from dpspectral.reports import meaning, page

_SHOWN_COMPONENTS, _SHOWN_ITEMS = 6, 5


def of_file(path: Path) -> str:
    """The page of a file that `fit`, `federate` or `peer` wrote."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    try:
        found = read_arrays(path)
        summary = json.loads(str(found.pop("summary")))
        return html(summary, found)
    except UNREADABLE as error:
        raise ValueError(f"{path}: not a basis that dpspectral saved ({type(error).__name__})") from error


def html(summary: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    """The page of a summary (`Result.summary`) and the arrays beside it in the file."""
    ledger = summary["ledger"]
    relation = ledger["releases"][0]["protects"] if ledger["releases"] else ""
    asked = _asked(summary)
    lasting = not summary.get("own_budget", True)
    parts = [
        *map(page.warning, _warnings(summary, arrays)),
        page.cards(
            [
                ("protected", _protected(relation)),
                ("ε, δ of this output", f"{asked.epsilon:.4g}, {asked.delta:g}"),
                ("a guess is right, at most", f"{meaning.of_hundred(meaning.guess(asked.mu))} of 100"),
                ("basis", f"{summary['items']:,} items × {summary['rank']}"),
            ]
        ),
        page.heading("What anyone can learn about one person from this output"),
        *meaning.words(relation, asked.epsilon, asked.delta, asked.mu),
        page.paragraph(
            "What is true of people in general is learnt, and that is the point: which items are popular, and which "
            "go together. It may tell something about you, whether or not you are in the data."
        ),
        page.paragraph(f"Protected, exactly: {summary['protects']}."),
        page.heading("What was released, and what it cost"),
        page.paragraph(_spent_words(ledger, lasting)),
        page.table(("release", "part of the budget", "μ", "noise (standard deviation)"), _releases(ledger)),
        *([page.picture(page.svg(_draw_budget(ledger)), _budget_caption(ledger))] if ledger["releases"] else []),
        *_whom(summary),
        page.heading("What was found"),
        *_found(summary, arrays),
        page.heading("How it was chosen"),
        page.paragraph(summary.get("reason") or "All choices were the caller's."),
        page.facts(_settings(summary)),
        page.heading("What is not covered"),
        page.bullets(
            [
                f"what was declared public: the list of items{', the number of users' * ('users_declared' in summary)}",
                "how long the run took, how much memory it used, and whether it failed",
                "other releases about the same people that are not in this ledger",
                "coordinates or lists that are computed from somebody's row with this basis: they are about that row",
            ]
        ),
        page.heading("Using it"),
        page.code(
            'import numpy as np\n\nbasis = np.load("FILE.npz")\nbasis["components"]   # items × rank, orthonormal\n'
            'basis["eigenvalues"]  # noisy estimates'
        ),
    ]  # fmt: skip
    return page.page("A private basis", parts)


def _settings(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    names = {
        "method": "method", "iterations": "iterations", "columns": "columns", "start": "start", "floor": "degree floor",
        "chosen_items": "items kept", "noise_std": "noise of the (last) release", "catalogue": "items",
        "users_declared": "users (declared)",
    }  # fmt: skip
    values = [(words, summary.get(name)) for name, words in names.items()]
    return [(words, f"{v:.4g}" if isinstance(v, float) else str(v)) for words, v in values if v is not None]


def _asked(summary: Mapping[str, Any]) -> Budget:
    """The budget of this call; without a lasting ledger it is the ledger's."""
    found = summary.get("budget", summary["ledger"]["budget"])
    return Budget(found["epsilon"], found["delta"])


def _protected(relation: str) -> str:
    return {"interaction": "one item of a person", "user": "a whole person", "row": "one row"}.get(
        relation.split("/")[0], "one update"
    )


def _warnings(summary: Mapping[str, Any], arrays: Mapping[str, Any]) -> list[str]:
    found = []
    ledger, budget = summary["ledger"], _asked(summary)
    if not summary["private"]:
        found.append("NOT PRIVATE: noise was seeded by hand, whoever knows the seed can subtract it. For studies only.")
    if budget.epsilon > 10:
        found.append(
            f"ε = {budget.epsilon:g} is a weak promise: a guess may be right in "
            f"{meaning.of_hundred(meaning.guess(budget.mu))} of 100 cases."
        )
    users = summary.get("users_declared")
    if users and budget.delta > 1 / (10 * users):
        found.append(f"δ = {budget.delta:g} is large for {users:,} users; choose at most 1/(10 · users).")
    if summary.get("own_budget", True):
        found.append(
            "The guarantee is for this call alone. Other calls about the same people add to it, unless all of them "
            "share a ledger (--ledger)."
        )
    elif ledger["spent"]["mu"] > 0.9 * ledger["budget"]["mu"]:
        found.append(f"The ledger of this data set is nearly empty: ε = {ledger['spent']['epsilon']:.4g} is spent.")
    if "from the data" in str(summary.get("catalogue", "")) or "occur" in str(summary.get("catalogue", "")):
        found.append("The list of items was read off the data and declared public: an item that one person has shows.")
    hidden = int((np.asarray(arrays["eigenvalues"]) <= 0).sum())
    if hidden:
        found.append(f"{hidden} of {summary['rank']} components drowned in noise: use a smaller rank, or more ε.")
    return found


def _spent_words(ledger: Mapping[str, Any], lasting: bool) -> str:
    spent, budget, count = ledger["spent"], ledger["budget"], len(ledger["releases"])
    whose = "The ledger of this data set has" if lasting else "This run made"
    return (
        f"{whose} {count} release{'s' if count != 1 else ''}. All of them together are worth ε = "
        f"{spent['epsilon']:.4g} at δ = {spent['delta']:g} (μ = {spent['mu']:.4g}), and ε = {budget['epsilon']:.4g} "
        "is allowed. Each was written down before its noise was drawn."
    )


def _releases(ledger: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    total = math.fsum(entry["mu"] ** 2 for entry in ledger["releases"]) or 1.0
    return [
        (
            entry["what"] + ("" if entry["private"] else " (not private)"), f"{entry['mu'] ** 2 / total:.1%}",
            f"{entry['mu']:.4g}", f"{entry['sigma'] * entry['step']:.4g}",
        )
        for entry in ledger["releases"]
    ]  # fmt: skip


def _budget_caption(ledger: Mapping[str, Any]) -> str:
    told = "; ".join(f"{what} {part}" for what, part, *_ in _releases(ledger)[:8])
    return f"Where the budget went, in parts of μ²: {told}."


def _draw_budget(ledger: Mapping[str, Any]) -> Any:
    from matplotlib.figure import Figure

    last = ledger["releases"][-12:]
    total = math.fsum(entry["mu"] ** 2 for entry in ledger["releases"])
    figure = Figure(figsize=(5.2, 0.7 + 0.32 * len(last)), layout="constrained")
    panel = figure.subplots()
    names = [entry["what"] if len(entry["what"]) < 34 else entry["what"][:32] + "…" for entry in last]
    panel.barh(range(len(last)), [100 * entry["mu"] ** 2 / total for entry in last], color="#3b82f6")
    panel.set_yticks(range(len(last)), names, fontsize=9)
    panel.invert_yaxis()
    panel.set_xlabel("percent of the budget")
    return figure


def _whom(summary: Mapping[str, Any]) -> list[str]:
    found = summary.get("parties") or summary.get("peers")
    if not found:
        return [
            page.heading("From whom it is protected"),
            page.paragraph("From everybody who sees this output. Whoever ran this held all rows, and was trusted to."),
        ]
    count = found.get("parties", found.get("peers"))
    server = (
        f"There was no server: {count} peers shared noise with {found['degree']} neighbours each. Whoever saw every "
        f"message, and up to {found['collusion']} of the peers together, learn no more than this output tells."
        if "degree" in found
        else f"{count} parties held the rows and showed them to nobody. The server, and up to {found['collusion']} of "
        "the parties together, learn no more than this output tells, if they follow the protocol."
    )
    return [
        page.heading("From whom it is protected"),
        page.paragraph(server),
        page.paragraph(f"Up to {found['drop_tolerance']} of them might leave on the way; noise for that was added."),
    ]


def _found(summary: Mapping[str, Any], arrays: Mapping[str, Any]) -> list[str]:
    values = np.asarray(arrays["eigenvalues"], dtype=float)
    level = summary["noise_std"] * math.sqrt(summary.get("chosen_items", summary["items"]))
    above = int((values > level).sum())
    told = (
        f"Noisy estimates of the {len(values)} leading eigenvalues, and about how strong a direction must be to be "
        f"found in this noise ({level:.3g}, line). {above} of {len(values)} stand above it."
    )
    parts = [page.picture(page.svg(_draw_values(values, level)), told)]
    if "popularity" in arrays:
        parts.append(
            page.paragraph(
                f"{summary['chosen_items']:,} of {summary['items']:,} items were kept, by noisy popularity (noise "
                f"{summary['popularity_noise_std']:.3g}); rows of the basis outside are zero."
            )
        )
    components = np.asarray(arrays["components"], dtype=float)
    names = [str(name) for name in arrays["items"]] if "items" in arrays else [str(i) for i in range(len(components))]
    rows = []
    for number in range(min(_SHOWN_COMPONENTS, components.shape[1])):
        column = components[:, number]
        first = np.argsort(-np.abs(column), kind="stable")[:_SHOWN_ITEMS]
        rows.append((str(number + 1), f"{values[number]:.4g}", *(f"{names[i]} {column[i]:+.2f}" for i in first)))
    header = ("component", "eigenvalue", *(f"item {k}" for k in range(1, min(_SHOWN_ITEMS, len(components)) + 1)))
    return [*parts, page.paragraph("The items that weigh most in the first components:"), page.table(header, rows)]


def _draw_values(values: Any, level: float) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    panel = figure.subplots()
    numbers = np.arange(1, len(values) + 1)
    panel.plot(numbers, values, color="#3b82f6", marker="o", markersize=4, linewidth=1, label="eigenvalues (noisy)")
    panel.axhline(level, color="#c2650c", linestyle="--", label="level of the noise")
    if values[-1] > 0 and level > 0:
        panel.set_yscale("log")
    panel.set_xlabel("component")
    panel.legend(frameon=False)
    return figure
