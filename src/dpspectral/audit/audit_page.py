"""Findings as a table and as a page."""

from __future__ import annotations

from collections.abc import Sequence

from dpspectral.audit.evidence import CONFIDENCES
from dpspectral.audit.games import Finding
from dpspectral.audit.one_run import OneRun
from dpspectral.reports import meaning
from dpspectral.reports.page import heading, page, paragraph, picture, plain_figures, svg, table

HEADER = ("mechanism", "games", "claimed ε", "proved ε, 95%", "proved ε, 99.9%", "part of the claim", "verdict")
_SINGLE = "popularity, one run"


def _row(name: str, games: str, claimed: float, finding: Finding | OneRun) -> tuple[str, ...]:
    low, high = (finding.proved(confidence) for confidence in CONFIDENCES)
    verdict = "BROKEN" if finding.broken else "holds"
    return name, games, f"{claimed:.3g}", f"{low:.3g}", f"{high:.3g}", f"{high / claimed:.0%}", verdict


def rows(findings: Sequence[Finding], single: OneRun | None) -> list[tuple[str, ...]]:
    shown = [_row(one.name, f"2 x {one.evidence.games:,}", one.claimed, one) for one in findings]
    if single:
        shown.append(_row(_SINGLE, f"{single.canaries:,} canaries", single.budget.epsilon, single))
    return shown


@plain_figures()
def html(findings: Sequence[Finding], single: OneRun | None) -> str:
    broken = [finding.name for finding in findings if finding.broken]
    broken += [_SINGLE] if single and single.broken else []
    parts = [
        *([] if broken else [paragraph("No attack proved more than what is claimed.")]),
        paragraph(
            "An attacker who knows everything but one interaction plays a game: the mechanism runs on one of two data "
            "sets that differ in that interaction, and the attacker, who sees everything that is released, says which. "
            "How often it is right proves a lower bound on ε, with the confidence that is given. One above the claim "
            "would refute it; one close below shows that the attack has teeth. It does not prove the claim: the "
            "proofs do."
        ),
        table(HEADER, rows(findings, single)),
    ]
    if findings:
        parts += [heading("Claimed and proved"), picture(_drawing(findings), _caption(findings))]
    parts += [
        heading("The worst pair"),
        paragraph(
            "Before the games, all pairs of small neighbouring data sets are tried without noise, and the pair that is "
            "furthest apart is taken. How far apart it is, as a part of the claimed μ:"
        ),
        table(("mechanism", "true μ of the pair", "claimed μ", "part"), [
            (f.name, f"{f.attained_mu:.4f}", f"{f.claimed_mu:.4f}", f"{f.attained_mu / f.claimed_mu:.1%}")
            for f in findings
        ]),
    ]  # fmt: skip
    if findings:
        claim = max(findings, key=lambda finding: finding.claimed_mu)
        parts += [
            heading(f"What a claim of ε = {claim.claimed:.3g} would mean for one person"),
            *meaning.words(
                "interaction/add-remove", claim.claimed, claim.delta, claim.claimed_mu, "all that is released"
            ),
        ]
    alarms = [f"The claim is refuted for: {', '.join(broken)}. Do not use this version for releases."]
    return page("Audit", parts, warnings=alarms if broken else [])


def _caption(findings: Sequence[Finding]) -> str:
    told = "; ".join(f"{f.name} {f.proved(CONFIDENCES[-1]):.2f} of {f.claimed:.2f}" for f in findings)
    return f"ε that the games prove with 99.9% confidence, and ε that is claimed (line): {told}."


def _drawing(findings: Sequence[Finding]) -> str:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.5 + 0.45 * len(findings)), layout="constrained")
    axis = figure.add_subplot()
    places = range(len(findings))
    axis.barh(places, [finding.proved(CONFIDENCES[-1]) for finding in findings], color="#3b6ea5")
    for place, finding in zip(places, findings, strict=True):
        axis.plot([finding.claimed] * 2, [place - 0.4, place + 0.4], color="black")
    axis.set_yticks(places, [finding.name for finding in findings])
    axis.invert_yaxis()
    axis.set_xlabel("ε")
    return svg(figure)
