"""What a guarantee means for one person, in words and in a picture.

The exact statement behind the words (docs/proofs/accounting.md, sections 1 and 7): with everything but one secret
known, telling its two values apart is as hard as telling N(0, 1) from N(μ, 1) by one draw. So a guess between them is
right with probability at most Φ(μ/2), a test with false alarms α finds it with probability at most Φ(Φ⁻¹(α) + μ), and
k secrets at once are worth kμ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from dpspectral.reports import page

_GROUP = (1, 2, 5, 10, 20)
_DRAWN = 5


@dataclass(frozen=True)
class Protected:
    """What a neighbouring relation protects, in words."""

    about: str  # whom, for headings
    secret: str
    several: str = ""  # what one person may have more than one of


_RELATIONS = {
    "interaction/add-remove": Protected("one person", "whether one given person had one given item", "items"),
    "interaction/replace": Protected("one person", "which of two given items one given person had", "items"),
    "user/add-remove": Protected("one person", "whether one given person is in the data, with everything they have"),
    "user/replace": Protected("one person", "which of two given rows is one given person's"),
    "user-epoch/add-remove": Protected("one person", "whether one given person did something in one epoch", "epochs"),
    "user-epoch/replace": Protected("one person", "which of two things one given person did in one epoch", "epochs"),
    "person/add-remove": Protected("one person", "whether one given person is in the table, with all their rows"),
    "person/replace": Protected("one person", "which of two given persons is in the table, with all their rows"),
    "row/add-remove": Protected("one row", "whether one given row is in the data", "rows"),
    "row/replace": Protected("one row", "which of two given rows is in the data", "rows"),
}
_OTHER = Protected("one update", "whether one given change of the protected kind was made", "changes")


def of(relation: str) -> Protected:
    return _RELATIONS.get(relation, _OTHER)


def guess(mu: float) -> float:
    """The most often that a guess between two equally likely possibilities can be right."""
    return float(ndtr(mu / 2))


def surer(mu: float, before: float) -> float:
    """The same for an attacker with this prior probability of one of the possibilities."""
    lean = math.log(before / (1 - before)) / mu
    return float(before * ndtr(mu / 2 + lean) + (1 - before) * ndtr(mu / 2 - lean))


def detection_rate(mu: float, false_alarms: float) -> float:
    """The largest true positive rate of a test with this false positive rate."""
    return float(ndtr(ndtri(false_alarms) + mu))


def of_hundred(probability: float) -> str:
    """Cases of 100, rounded up: a bound stays one."""
    return f"{min(math.ceil(probability * 1000 - 1e-9) / 10, 100):g}"


def sentence(relation: str, mu: float) -> str:
    """One line for a terminal."""
    return (
        f"an attacker who knows all the rest and guesses {of(relation).secret} is right in at most "
        f"{of_hundred(guess(mu))} of 100 cases (a coin: 50)"
    )


def words(relation: str, epsilon: float, delta: float, mu: float, what: str = "this output") -> list[str]:
    """Parts of a page: what anyone can learn about one person (or row)."""
    factor = math.exp(min(epsilon, 700))
    times = f"{factor:.3g}" if factor < 1e6 else "more than a million"
    protected = of(relation)
    parts = [
        page.paragraph(
            f"Suppose an attacker knows everything about everyone in the data except one thing: {protected.secret}. "
            "Both answers are equally likely beforehand. By tossing a coin it is right in 50 of 100 cases. Having seen "
            f"{what}, and with unlimited computing power, it is right in at most {of_hundred(guess(mu))} of "
            f"100. (An attacker who was 90% sure before: at most {of_hundred(surer(mu, 0.9))}.)"
        ),
        page.paragraph(
            f"In the usual terms, ε = {epsilon:.4g} and δ = {delta:g}: any conclusion has at most e^ε = {times} times "
            "the probability that it would have if the answer were the other one, plus δ."
        ),
    ]
    if protected.several:
        rows = []
        for count in _GROUP:
            many = count * mu
            asked = f"{count} {protected.several} of a person" if count > 1 else f"one of the {protected.several}"
            rows.append((asked, of_hundred(guess(many)), of_hundred(detection_rate(many, 0.01))))
        instead = (
            "To protect a whole person, use User() in Python or --unit user on the command line."
            if protected.several == "items"
            else "To protect a whole person, say which rows are theirs: groups= in Python, --group on the command line."
        )
        parts += [
            page.paragraph(
                f"This protects single {protected.several}, not a person who has several of them: the more of them are "
                f"asked about together, the less is hidden. {instead}"
            ),
            page.table(("asked about together", "right, of 100, at most", "found, of 100, at 1% false alarms"), rows),
        ]
    parts.append(page.picture(page.svg(draw(relation, mu)), caption(relation, mu)))
    return parts


def caption(relation: str, mu: float) -> str:
    several = of(relation).several
    more = f" and for {_DRAWN} {several} of a person at once (dashed)" if several else ""
    return (
        f"The best that anyone can do: share of true cases found against share of false alarms, for one secret (line)"
        f"{more}; dotted: guessing blindly. At 1 false alarm of 100 at most {of_hundred(detection_rate(mu, 0.01))} of "
        "100 true cases are found, blindly 1."
    )


def draw(relation: str, mu: float) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    panel = figure.subplots()
    alarms = np.concatenate([np.geomspace(1e-4, 0.1, 60), np.linspace(0.1, 1, 60)])
    panel.plot(alarms, ndtr(ndtri(alarms) + mu), color="#3b82f6", linewidth=2, label="one secret")
    if of(relation).several:
        many = ndtr(ndtri(alarms) + _DRAWN * mu)
        panel.plot(alarms, many, color="#3b82f6", linestyle="--", label=f"{_DRAWN} at once")
    panel.plot(alarms, alarms, color="black", linestyle=":", label="blindly")
    panel.set_xscale("log")
    panel.set_xlabel("false alarms")
    panel.set_ylabel("true cases found")
    panel.set_ylim(0, 1.02)
    panel.legend(frameon=False)
    return figure
