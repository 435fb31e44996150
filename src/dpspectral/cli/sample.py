"""What `dpspectral sample` does."""

from __future__ import annotations

from pathlib import Path

from dpspectral.cli.console import facts, plain_errors
from dpspectral.core.files import check_writable, write_text
from dpspectral.data.synthetic import tastes


def sample(folder: Path, users: int, items: int, seed: int) -> None:
    with plain_errors():
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / name for name in ("ratings.csv", "items.txt", "new-users.csv")]
        for file in files:
            if file.exists():
                raise ValueError(f"{file} exists; choose a folder without it")
            check_writable(file)
        pairs = tastes(users + 10, items, seed=seed).tocoo()
        lines = [(user, f"u{user},film-{item}\n") for user, item in zip(pairs.row, pairs.col, strict=True)]
        texts = [
            "user,item\n" + "".join(line for user, line in lines if user < users),
            "".join(f"film-{item}\n" for item in range(items)),
            "user,item\n" + "".join(line for user, line in lines if user >= users),
        ]
        for file, text in zip(files, texts, strict=True):
            write_text(file, text)
    facts([("written", ", ".join(map(str, files))), ("note", "synthetic data")])
