"""`dpspectral sample`."""

from __future__ import annotations

from pathlib import Path

import click

from dpspectral.cli.common import facts, plain_errors
from dpspectral.core.files import check_writable, write_text


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--users", type=click.IntRange(10, 10**6), default=5000, show_default=True)
@click.option("--items", type=click.IntRange(40, 10**5), default=500, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=7, show_default=True)
def sample(folder: Path, users: int, items: int, seed: int) -> None:
    """Write nobody's data to FOLDER, for trying things out.

    ratings.csv has a user and an item on each line, items.txt is the public list of items, and new-users.csv has ten
    users who are not in ratings.csv.
    """
    from dpspectral.data.synthetic import tastes

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
    facts([("written", ", ".join(map(str, files))), ("note", "synthetic: nobody's data")])
