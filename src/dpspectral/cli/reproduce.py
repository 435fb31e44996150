"""What `dpspectral reproduce` does. Not private: exact figures of the data."""

from __future__ import annotations

import sys
from pathlib import Path

from dpspectral.cli.console import ERR, facts, plain_errors
from dpspectral.core.names import PARTS
from dpspectral.privacy.budget import Budget
from dpspectral.studies.curves import LABELS, STEPS
from dpspectral.studies.reproduce import Options, command_line
from dpspectral.studies.reproduce import reproduce as make


def reproduce(
    names: tuple[str, ...],
    data: Path | None,
    sets: tuple[str, ...],
    runs: int | None,
    epsilons: tuple[float, ...],
    curves: tuple[str, ...],
    automatic: bool,
    out: Path,
) -> None:
    with plain_errors():
        if out.exists() and not out.is_dir():
            raise OSError(f"cannot write to {out}: it is a file, not a folder")
        for epsilon in epsilons:
            Budget(epsilon, 0.5)
        chosen = PARTS if "all" in names else tuple(name for name in PARTS if name in names)
        wanted = curves or STEPS
        if automatic:
            wanted = tuple(name for name in LABELS if name in wanted or name not in STEPS)
        options = Options(data, out, runs, sets or None, wanted, tuple(sorted(epsilons)) or None, command_line())
        try:
            with ERR.status("starting") as status:
                file = make(chosen, options, lambda text: status.update(text))
        except KeyboardInterrupt:
            ERR.print(f"interrupted; what was computed is in {out}: run the same command again to go on")
            sys.exit(130)
    facts([("made", ", ".join(chosen)), ("report", str(file)), ("note", "not private: exact figures of the data")])
