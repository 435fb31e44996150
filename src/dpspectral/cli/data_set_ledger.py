"""The data set's ledger, as the commands open it and speak of it."""

from __future__ import annotations

from pathlib import Path

from dpspectral.privacy.ledger import Ledger


def open_ledger(file: Path) -> Ledger:
    if not file.exists():
        raise ValueError(
            f"there is no ledger {file}; make one for the data set, once, with the total it may ever spend: "
            f"dpspectral ledger create {file} --epsilon ... --delta ..."
        )
    return Ledger.open(file)


def ledger_words(ledger: Ledger) -> str:
    """Where a lasting ledger stands."""
    total = ledger.budget
    return (
        f"{ledger.path}: ε = {ledger.epsilon():.6g} of {total.epsilon:g} spent at δ = {total.delta:g} "
        f"in {len(ledger.entries)} release(s)"
    )
