"""The report on a private basis.

It is made from a `Result` alone, so it reveals nothing that the result does not. A result may come from an untrusted
file: its contents were checked when it was loaded, and are escaped here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpspectral.core.files import UNREADABLE, check_writable, write_text
from dpspectral.methods.coverage import Covered
from dpspectral.methods.result import Result
from dpspectral.privacy.budget import Budget
from dpspectral.reports import meaning, page, stream_page, table_page

_SHOWN_COMPONENTS, _SHOWN_ITEMS, _SHOWN_RELEASES, _SHOWN_VALUES = 6, 5, 12, 1000


def beside(path: Path) -> Path:
    """Default path of the report on a file."""
    name = path.name.removesuffix(".npz")
    return path.with_name(f"{name}.report.html")


def report(result: Result, path: str | os.PathLike[str], items: Sequence[str] | None = None) -> None:
    """Write a plain-language report (.html): what was released, and what it reveals about one person.

    `items` are the public names of the columns. The report holds nothing that is not in the result.
    """
    if not isinstance(result, Result):
        raise TypeError(f"report takes a Result, got {type(result).__name__}; of a fitted model, pass model.result_")
    named = result if items is None else replace(result, items=tuple(str(item) for item in items))
    check_writable(path)
    write_text(path, html(named), errors="replace")


def of_file(path: Path) -> str:
    """The report on a file that `fit`, `federate` or `peer` wrote."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    result = Result.load(path)
    try:
        return html(result)
    except (*UNREADABLE, ZeroDivisionError) as error:
        raise ValueError(f"{path}: not a basis that dpspectral saved ({error or type(error).__name__})") from error


@page.plain_figures()
def html(result: Result) -> str:
    """The report on a result."""
    summary = result.summary()
    arrays: dict[str, Any] = {"components": result.components, "eigenvalues": result.eigenvalues}
    if result.items is not None:
        arrays["items"] = result.items
    if result.catalogue is not None:
        arrays["popularity"] = result.catalogue.popularity
    ledger = summary["ledger"]
    relation = str(ledger["releases"][0]["protects"]) if ledger["releases"] else ""
    asked = _budget(summary)
    about = meaning.of(relation).about
    table = result.facts.table
    popular = about == "one person" and table is None
    general = "which items are popular, and which go together" if popular else "how the columns move together"
    things = "items" if table is None else "columns"
    seen, spent = "this output", "ε, δ of this output"
    if result.facts.stream is not None:
        seen, spent = stream_page.ALL, "ε, δ of all epochs together"
    parts = [
        page.cards(
            [
                ("protected", _protected(relation)),
                (spent, f"{asked.epsilon:.4g}, {asked.delta:g}"),
                ("a 50:50 guess is right, at most", f"{meaning.of_hundred(meaning.guess(asked.mu))} of 100"),
                ("basis", f"{summary['items']:,} {things} × {summary['rank']}"),
            ]
        ),
        page.heading(f"What anyone can learn about {about} from {seen}"),
        *meaning.words(relation, asked.epsilon, asked.delta, asked.mu, seen),
        page.paragraph(
            f"General facts are learnt, and that is the purpose: {general}. They may say something about "
            "you, whether or not you are in the data."
        ),
        page.paragraph(f"Protected, exactly: {summary['protects']}."),
        *([] if result.facts.stream is None else [page.heading("Weeks"), *stream_page.parts(result, relation)]),
        page.heading("What was released, and what it cost"),
        page.paragraph(_spent_words(summary)),
        page.table(("release", "part of the budget", "μ", "noise, at least (standard deviation)"), _releases(summary)),
        *([page.picture(page.svg(_draw_budget(summary)), _budget_caption(summary))] if ledger["releases"] else []),
        page.heading("From whom it is protected"),
        *_whom(summary),
        page.heading("What the basis holds"),
        *(_basis_parts(summary, arrays) if table is None else table_page.parts(result)),
        page.heading("How it was chosen"),
        page.paragraph(str(summary.get("reason") or "All choices were the caller's.")),
        page.facts([*_settings(summary), *([] if table is None else table_page.settings(table))]),
        page.heading("What is not covered"),
        page.bullets(
            [
                "what was declared public: " + ", ".join(map(str, summary.get("public", ["the list of items"]))),
                "how long the run took, how much memory it used, and whether it failed",
                "other releases about the same people that are not in this ledger",
                "coordinates or lists computed from a person's row with this basis: they are about that row",
            ]
        ),
        page.heading("Using it"),
        page.code(_use(result)),
    ]
    title = "A private basis" if table is None else "Private principal components"
    return page.page(title, parts, warnings=_warnings(summary, arrays))


def _use(result: Result) -> str:
    if result.facts.table is not None:
        return (
            'from dpspectral import PrivatePCA\n\npca = PrivatePCA.load("FILE.npz")\n'
            "pca.components_                # components × columns, orthonormal\n"
            "pca.explained_variance_ratio_  # parts of the variance\n"
            "pca.transform(rows)            # coordinates of rows: they are about those rows"
        )
    return (
        'from dpspectral import Result\n\nbasis = Result.load("FILE.npz")\n'
        "basis.components   # items × rank, orthonormal\n"
        "basis.eigenvalues  # noisy estimates" + ("\nbasis.items        # names of the items" if result.items else "")
    )


def _settings(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    names = {
        "method": "method", "iterations": "iterations", "columns": "columns", "start": "start", "floor": "degree floor",
        "chosen_items": "items kept", "noise_std": "noise per entry", "users_declared": "users (declared)",
    }  # fmt: skip
    values = [(words, summary.get(name)) for name, words in names.items()]
    return [(words, f"{v:.4g}" if isinstance(v, float) else str(v)) for words, v in values if v is not None]


def _budget(summary: Mapping[str, Any]) -> Budget:
    """The budget of this call; in files without one, the ledger's."""
    budget = summary.get("budget", summary["ledger"]["budget"])
    return Budget(budget["epsilon"], budget["delta"])


def _protected(relation: str) -> str:
    return {"interaction": "one item of a person", "user": "a whole person", "row": "one row",
            "person": "a whole person"}.get(relation.split("/")[0], "one update")  # fmt: skip


def _warnings(summary: Mapping[str, Any], arrays: Mapping[str, Any]) -> list[str]:
    warnings = []
    ledger, budget = summary["ledger"], _budget(summary)
    if not summary["private"]:
        warnings.append(
            "NOT PRIVATE: the noise was seeded, and anyone who knows the seed can subtract it. For studies only."
        )
    worth = math.sqrt(math.fsum((entry["sensitivity"] / entry["sigma"]) ** 2 for entry in ledger["releases"]))
    if worth > budget.mu * (1 + 1e-9):
        warnings.append(
            f"The releases in this file are worth more than it says: μ = {worth:.4g}, but its budget is μ = "
            f"{budget.mu:.4g}. Do not rely on it."
        )
    if budget.epsilon > 10:
        warnings.append(
            f"ε = {budget.epsilon:g} is a weak guarantee: a guess may be right in "
            f"{meaning.of_hundred(meaning.guess(budget.mu))} of 100 cases."
        )
    users = summary.get("users_declared", summary.get("users_counted"))
    if users and budget.delta > 1 / (10 * users):
        warnings.append(f"δ = {budget.delta:g} is large for {users:,} users; choose at most 1/(10 · users).")
    if _parties(summary).get("rehearsal"):
        warnings.append("A simulation: all parties were in one process, and its operator could see all rows.")
    if summary.get("own_budget", True) and _parties(summary).get("rehearsal", True):
        warnings.append(
            "The guarantee is for this call alone. Other calls about the same people add to it, unless all of them "
            "share a Ledger (--ledger)."
        )
    together = ledger["spent"]["mu"]
    if not summary.get("own_budget", True) and ledger.get("earlier", 0):
        warnings.append(
            f"More than this was released about these people: an attacker who sees all releases in the ledger may "
            f"guess right in {meaning.of_hundred(meaning.guess(together))} of 100 cases."
        )
    if not summary.get("own_budget", True) and together > 0.9 * ledger["budget"]["mu"]:
        warnings.append(f"The ledger of this data set is nearly empty: ε = {ledger['spent']['epsilon']:.4g} is spent.")
    if ledger.get("lasting") and not ledger.get("anchored"):
        warnings.append(
            "The ledger has no anchor: if its file were restored from a backup, this would not be detected, and "
            "what was spent since would be lost (dpspectral ledger anchor)."
        )
    if summary.get("items_from") == "from-data":
        warnings.append(
            "The list of items was read off the data and declared public: that an item occurs at all is not protected, "
            "and an item that only one person has is revealed."
        )
    if "coverage" in summary and (covered := Covered.of_record(summary["coverage"])).poor:
        warnings.append(
            f"A long tail: the {summary['chosen_items']:,} kept items leave about {1 - covered.users.value:.0%} of the "
            "users without any. Such users can be served by popularity only. More ε, more people or public facts about "
            "items (item_features) would help."
        )
    hidden = int((np.asarray(arrays["eigenvalues"]) <= _noise_alone(summary)).sum())
    if hidden:
        warnings.append(
            f"{hidden} of {summary['rank']} components are not above the level of noise alone and may be nothing but "
            "noise. A smaller rank, more people or more ε would help."
        )
    return warnings


def _noise_alone(summary: Mapping[str, Any]) -> float:
    """About the largest eigenvalue that noise without any data would have: 2σ√n, or σ(√n + √p) with p columns."""
    items = math.sqrt(summary.get("chosen_items", summary["items"]))
    return float(summary["noise_std"] * (items + math.sqrt(summary.get("columns", items**2))))


def warnings_of(result: Result) -> list[str]:
    """The report's warnings about a `Result`, for a terminal."""
    return _warnings(result.summary(), {"eigenvalues": result.eigenvalues})


def _parties(summary: Mapping[str, Any]) -> Mapping[str, Any]:
    parties = summary.get("parties", {})
    return parties if isinstance(parties, Mapping) else {}


def _spent_words(summary: Mapping[str, Any]) -> str:
    ledger, count = summary["ledger"], len(summary["ledger"]["releases"])
    spent, budget = ledger["spent"], ledger["budget"]
    told = f"This run made {count} release{'s' if count != 1 else ''}, each written down before its noise was drawn. "
    if summary.get("own_budget", True):
        told += f"Together they are worth ε = {spent['epsilon']:.4g} at δ = {spent['delta']:g} (μ = {spent['mu']:.4g})."
        if _parties(summary) and not _parties(summary).get("rehearsal"):
            told += " What the data of each party has spent in all is in that party's own ledger."
        return told
    earlier = int(ledger.get("earlier", 0))
    return told + (
        f"With the {earlier} release(s) before, the ledger of this data set has spent ε = {spent['epsilon']:.4g} of "
        f"{budget['epsilon']:.4g} at δ = {spent['delta']:g}."
    )


def _releases(summary: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    total = _budget(summary).mu ** 2
    return [
        (
            str(entry["what"]) + ("" if entry["private"] else " (not private)"), f"{entry['mu'] ** 2 / total:.1%}",
            f"{entry['mu']:.4g}", f"{entry['sigma'] * entry['step']:.4g}",
        )
        for entry in summary["ledger"]["releases"]
    ]  # fmt: skip


def _budget_caption(summary: Mapping[str, Any]) -> str:
    told = "; ".join(f"{what} {part}" for what, part, *_ in _releases(summary)[-_SHOWN_RELEASES:])
    return f"Where the budget of this run went, in parts of μ²: {told}."


def _draw_budget(summary: Mapping[str, Any]) -> Any:
    from matplotlib.figure import Figure

    last, total = summary["ledger"]["releases"][-_SHOWN_RELEASES:], _budget(summary).mu ** 2
    figure = Figure(figsize=(5.2, 0.7 + 0.32 * len(last)), layout="constrained")
    panel = figure.subplots()
    names = [what if len(what) < 34 else what[:32] + "…" for what in (str(entry["what"]) for entry in last)]
    panel.barh(range(len(last)), [100 * entry["mu"] ** 2 / total for entry in last], color="#3b82f6")
    panel.set_yticks(range(len(last)), names, fontsize=9, parse_math=False)
    panel.invert_yaxis()
    panel.set_xlabel("percent of the budget")
    return figure


def _whom(summary: Mapping[str, Any]) -> list[str]:
    parties = _parties(summary)
    if "collusion" not in parties:
        return [
            page.paragraph(
                "From everyone who sees this output. The curator who ran this held all rows and was trusted with them."
            )
        ]
    if parties.get("rehearsal"):
        held = (
            f"A simulation with {parties['parties']} parties in one process, whose operator held all rows. Between "
            "real machines the following would hold. "
        )
    else:
        held = f"{parties['parties']} parties held the rows, and no party's rows left it. "
    seen = (
        f"There was no server. An eavesdropper on every message, and up to {parties['collusion']} of the peers "
        "colluding,"
        if parties.get("protocol") == "peers"
        else f"The server, and up to {parties['collusion']} of the parties colluding with it,"
    )
    told = [
        page.paragraph(
            f"{held}{seen} saw more noisy numbers than are in this file, but the bound above holds for them too, about "
            "all other parties' data, if all of them followed the protocol."
        )
    ]
    if parties["drop_tolerance"]:
        told.append(
            page.paragraph(f"Up to {parties['drop_tolerance']} of them could drop out; the noise suffices for that.")
        )
    return told


def _basis_parts(summary: Mapping[str, Any], arrays: Mapping[str, Any]) -> list[str]:
    values = np.asarray(arrays["eigenvalues"], dtype=float)
    level = _noise_alone(summary)
    above = int((values > level).sum())
    told = (
        f"Noisy estimates of the {len(values)} leading eigenvalues, and about the largest that noise alone would have "
        f"({level:.3g}, line). {above} of {len(values)} stand above it. Directions whose eigenvalues differ by less "
        "than that may be mixed up with each other."
    )
    parts = [page.picture(page.svg(_draw_values(values[:_SHOWN_VALUES], level)), told)]
    if "popularity" in arrays:
        parts.append(
            page.paragraph(
                f"{summary['chosen_items']:,} of {summary['items']:,} items were kept, by noisy popularity (noise "
                f"{summary['popularity_noise_std']:.3g}); rows of the basis outside are zero. {_coverage(summary)}"
            )
        )
    components = np.asarray(arrays["components"], dtype=float)
    rows = []
    for number in range(min(_SHOWN_COMPONENTS, components.shape[1])):
        column = components[:, number]
        first = np.argsort(-np.abs(column), kind="stable")[:_SHOWN_ITEMS]
        names = [str(arrays["items"][i])[:60] if "items" in arrays else str(i) for i in first]
        shown = (f"{name} {column[i]:+.2f}" for name, i in zip(names, first, strict=True))
        rows.append((str(number + 1), f"{values[number]:.4g}", *shown))
    header = ("component", "eigenvalue", *(f"item {k}" for k in range(1, min(_SHOWN_ITEMS, len(components)) + 1)))
    return [*parts, page.paragraph("The items that weigh most in the first components:"), page.table(header, rows)]


def _coverage(summary: Mapping[str, Any]) -> str:
    if "coverage" in summary:
        return f"Of those who have an item, {Covered.of_record(summary['coverage']).words} (95% intervals)."
    if summary["chosen_items"] == summary["items"]:
        return ""
    return "Which part of the users they cover was not released (--coverage SHARE, coverage=..., releases it)."


def _draw_values(values: Any, level: float) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    panel = figure.subplots()
    numbers = np.arange(1, len(values) + 1)
    panel.plot(numbers, values, color="#3b82f6", marker="o", markersize=4, linewidth=1, label="eigenvalues (noisy)")
    panel.axhline(level, color="#c2650c", linestyle="--", label="noise alone")
    if values[-1] > 0 and level > 0:
        panel.set_yscale("log")
    panel.set_xlabel("component")
    panel.legend(frameon=False)
    return figure
