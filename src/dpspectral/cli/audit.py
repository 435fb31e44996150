"""What `dpspectral audit` does."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.table import Table as Grid

from dpspectral.audit import ATTACKS, CONFIDENCES, one_run
from dpspectral.audit import audit as play
from dpspectral.audit.audit_page import HEADER, html, rows
from dpspectral.cli.console import ERR, OUT, check_out, plain_errors, progress_bar
from dpspectral.core.files import write_text
from dpspectral.core.names import MECHANISMS
from dpspectral.privacy.budget import Budget


def audit(
    only: tuple[str, ...], games: int, epsilon: float, delta: float, processes: int | None, out: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    with plain_errors():
        budget = Budget(epsilon, delta)
        if out is not None:
            check_out(out)
        chosen = dict(zip(MECHANISMS, ATTACKS.values(), strict=True))
        names = only or MECHANISMS
        findings = []
        try:
            with progress_bar(float(len(names)), "searching for the worst pair") as tell:
                for number, name in enumerate(names):
                    attack = chosen[name](budget=budget)
                    findings.append(
                        play(
                            attack, games, processes=processes,
                            progress=lambda part, n=number, a=attack: tell(n + part, a.name),  # type: ignore[misc]
                        )
                    )  # fmt: skip
        except KeyboardInterrupt:
            ERR.print("interrupted; nothing was written")
            sys.exit(130)
        # δ is paid for every canary, so one run needs a smaller one to prove anything.
        single = None if only else one_run(Budget(epsilon, min(delta, 1e-9)))
        if out is not None:
            write_text(out, html(findings, single))
    if as_json:
        told = [
            {
                "mechanism": f.name, "games": f.evidence.games, "claimed_epsilon": f.claimed, "delta": f.delta,
                "proved_epsilon": {str(c): f.proved(c) for c in CONFIDENCES},
                "assumption_free_epsilon": {str(c): f.evidence.plain_epsilon(f.delta, c) for c in CONFIDENCES},
                "pair_mu": f.attained_mu, "claimed_mu": f.claimed_mu, "broken": f.broken,
            }
            for f in findings
        ]  # fmt: skip
        click.echo(json.dumps(told, indent=2))
    else:
        grid = Grid(*HEADER)
        for cells in rows(findings, single):
            grid.add_row(*cells)
        OUT.print(grid, highlight=False)
        if out is not None:
            OUT.print(f"report: {out}", highlight=False)
    if any(finding.broken for finding in findings) or (single is not None and single.broken):
        raise click.ClickException("a claim is refuted: do not use this version for releases")
