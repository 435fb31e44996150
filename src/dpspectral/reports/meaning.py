"""What a guarantee means for one person, in words and in a picture.

The exact statement behind the words (docs/proofs/accounting.md, sections 1 and 7): with everything but one secret
known, telling its two values apart is as hard as telling N(0, 1) from N(μ, 1) by one draw. So a guess between them is
right with probability at most Φ(μ/2), a test with false alarms α finds it with probability at most Φ(Φ⁻¹(α) + μ), and
k secrets at once are worth kμ.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from dpspectral.reports import page

_SECRETS = {
    "interaction/add-remove": "whether one given person had one given item",
    "interaction/replace": "which of two given items one given person had",
    "user/add-remove": "whether one given person is in the data, with everything they have",
    "user/replace": "which of two given rows is one given person's",
    "row/add-remove": "whether one given row is in the data",
    "row/replace": "which of two given rows is in the data",
}
_GROUP = (1, 2, 5, 10, 20)
_DRAWN = 5


def guess(mu: float) -> float:
    """The most often that a guess between two equally likely possibilities can be right."""
    return float(ndtr(mu / 2))


def found_with(mu: float, false_alarms: float) -> float:
    """The largest share of true cases that a test with so many false alarms can find."""
    return float(ndtr(ndtri(false_alarms) + mu))


def secret(relation: str) -> str:
    return _SECRETS.get(relation, "whether one given change of the protected kind was made")


def of_hundred(probability: float) -> str:
    """Cases of 100, rounded up: a bound stays one."""
    return f"{min(math.ceil(probability * 1000 - 1e-9) / 10, 100):g}"


def sentence(relation: str, mu: float) -> str:
    """One line for a terminal."""
    return (
        f"whoever knows all the rest and guesses {secret(relation)} is right in at most {of_hundred(guess(mu))} of 100 "
        "cases (a coin: 50)"
    )


def words(relation: str, epsilon: float, delta: float, mu: float, what: str = "this output") -> list[str]:
    """Parts of a page: what anyone can learn about one person."""
    factor = math.exp(min(epsilon, 700))
    times = f"{factor:.3g}" if factor < 1e6 else "more than a million"
    parts = [
        page.paragraph(
            f"Suppose somebody knows everything about everybody in the data but one thing: {secret(relation)}. Both "
            "answers are equally likely to them. Tossing a coin they would be right in 50 of 100 cases. Having seen "
            f"{what}, and with all the computers in the world, they are right in at most {of_hundred(guess(mu))} of "
            "100."
        ),
        page.paragraph(
            f"In the usual terms, ε = {epsilon:.4g} and δ = {delta:g}: nothing they could conclude about it becomes "
            f"more than e^ε = {times} times as likely as without it, but for a chance of δ."
        ),
    ]
    if relation.startswith("interaction"):
        rows = []
        for count in _GROUP:
            many = count * mu
            asked = f"{count} of a person's items" if count > 1 else "one item"
            rows.append((asked, of_hundred(guess(many)), of_hundred(found_with(many, 0.01))))
        parts += [
            page.paragraph(
                "This protects single items of a person, not the person: the more items one asks about together, the "
                "less is hidden. Everything about a person is protected by --unit user instead."
            ),
            page.table(("asked about together", "right, of 100, at most", "found, of 100, at 1% false alarms"), rows),
        ]
    parts.append(page.picture(page.svg(draw(relation, mu)), caption(relation, mu)))
    return parts


def caption(relation: str, mu: float) -> str:
    more = f" and for {_DRAWN} items of a person at once (dashed)" if relation.startswith("interaction") else ""
    return (
        f"The best that anyone can do: share of true cases found against share of false alarms, for one secret (line)"
        f"{more}; dotted: guessing blindly. At 1% false alarms {found_with(mu, 0.01):.1%} are found, blindly 1%."
    )


def draw(relation: str, mu: float) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    panel = figure.subplots()
    alarms = np.concatenate([np.geomspace(1e-4, 0.1, 60), np.linspace(0.1, 1, 60)])
    panel.plot(alarms, ndtr(ndtri(alarms) + mu), color="#3b82f6", linewidth=2, label="one secret")
    if relation.startswith("interaction"):
        panel.plot(
            alarms, ndtr(ndtri(alarms) + _DRAWN * mu), color="#3b82f6", linestyle="--", label=f"{_DRAWN} at once"
        )
    panel.plot(alarms, alarms, color="black", linestyle=":", label="blindly")
    panel.set_xscale("log")
    panel.set_xlabel("false alarms")
    panel.set_ylabel("found")
    panel.set_ylim(0, 1.02)
    panel.legend(frameon=False)
    return figure
