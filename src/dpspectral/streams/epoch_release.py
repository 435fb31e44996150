"""The releases of one epoch: popularity, then which items are kept, then their matrix. Each is made once.

Every step is a file that is there or not (`folder.py`): this goes on after the last one, wherever a process was killed.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspectral.data.tables import Table
from dpspectral.linalg.epoch_pairs import Dated
from dpspectral.privacy.entries import check_sigma
from dpspectral.privacy.noise import Noise, NotPrivate, SecureNoise
from dpspectral.release.answer import prepaid, released
from dpspectral.release.stream_queries import StreamMatrix, StreamQuery, StreamTally
from dpspectral.streams import running_sum
from dpspectral.streams.choices import added_items, chosen_floor
from dpspectral.streams.folder import Epoch, StreamFolder
from dpspectral.streams.settings import StreamSettings


def release_epoch(folder: StreamFolder, table: Table | None, added: list[str], seeded: NotPrivate | None) -> None:
    """Take in the next epoch and release it. At the end it is noted in the ledger: only then may it be given out."""
    number = len(folder.epochs) + 1
    if folder.log.epochs < number:
        names = [*folder.items, *added]
        folder.log.take_in(table, _columns(table, names), _hashed(folder.settings, names), added)
    rows = folder.log.rows()
    popularity = _popularity(folder, number, rows, seeded)
    choice = _choice(folder, number, popularity["sigma"])
    matrix = None if choice["floor"] is None else _matrix(folder, number, choice, rows, seeded)
    done = Epoch(number, tuple(choice["kept"]), choice["floor"], len(folder.items), popularity, matrix)
    folder.write_text(number, "json", done.text())
    folder.epochs.append(done)
    folder.check()


def _popularity(folder: StreamFolder, number: int, rows: Dated, seeded: NotPrivate | None) -> dict[str, Any]:
    settings = folder.settings
    query = StreamTally(settings.unit, settings.rule(1), settings.counter, number, len(folder.items))
    sigma = check_sigma(query.sensitivity / settings.popularity_mu)
    if not folder.file(number, "popularity.npy").exists():
        folder.write_array(number, "popularity.npy", _answer(folder, query, rows, sigma, seeded).integers)
    return {"sigma": sigma, "digest": folder.digest(number, "popularity.npy")}


def _choice(folder: StreamFolder, number: int, sigma: float) -> dict[str, Any]:
    """The floor, and the items that are kept from now on."""
    if not folder.file(number, "choice.json").exists():
        settings = folder.settings
        scale = settings.rule(1).tally.scale
        popularity = running_sum.popularity(folder, number, len(folder.items), scale)
        deviation = sigma * settings.counter.noise(number) * scale
        floor = folder.floor or chosen_floor(settings, popularity, deviation, number)
        more = [] if floor is None else added_items(settings, popularity, folder.kept)
        folder.write_text(number, "choice.json", json.dumps({"floor": floor, "kept": more}))
    choice: dict[str, Any] = json.loads(folder.file(number, "choice.json").read_text())
    return choice


def _matrix(
    folder: StreamFolder, number: int, choice: dict[str, Any], rows: Dated, seeded: NotPrivate | None
) -> dict[str, Any]:
    settings = folder.settings
    kept = np.array([*folder.kept, *choice["kept"]], dtype=np.int64)
    started = np.array([*folder.started, *[number] * len(choice["kept"])], dtype=np.int32)
    rule = settings.rule(choice["floor"])
    query = StreamMatrix(settings.unit, rule, settings.counter, number, kept, started, len(folder.items))
    sigma = check_sigma(query.sensitivity / settings.matrix_mu)
    if not folder.file(number, "matrix.npy").exists():
        answer = _answer(folder, query, rows, sigma, seeded)
        folder.write_array(number, "matrix.npy", answer.numbers)
    return {"sigma": sigma, "step": query.step(sigma), "digest": folder.digest(number, "matrix.npy")}


def _answer(folder: StreamFolder, query: StreamQuery, rows: Dated, sigma: float, seeded: NotPrivate | None) -> Any:
    charge = prepaid(folder.ledger, folder.settings.id, folder.settings.budget.mu)
    return released(query, rows, _noise(query, seeded), sigma, charge)


def _noise(query: StreamQuery, seeded: NotPrivate | None) -> Noise:
    """Reproducible noise is another one in every epoch."""
    if seeded is None:
        return SecureNoise()
    return NotPrivate(seeded.seed * 100_000 + 2 * query.now + isinstance(query, StreamMatrix), seeded.scale)


def _columns(table: Table | None, names: list[str]) -> NDArray[np.int64]:
    """Places of a table's columns in the list."""
    if table is None:
        return np.empty(0, dtype=np.int64)
    assert table.items is not None
    places = {name: k for k, name in enumerate(names)}
    columns = np.array([places.get(name, -1) for name in table.items], dtype=np.int64)
    if (columns < 0).any():
        unknown = table.items[int(np.argmin(columns))]
        raise ValueError(
            f"the item {unknown[:60]!r} is not in the stream's list; append it with items=, or read the events with "
            "that list and unknown_items='drop'"
        )
    return columns


def _hashed(settings: StreamSettings, names: list[str]) -> NDArray[np.uint64]:
    """A number for each item, by which the first items of a user are chosen within an epoch."""
    if settings.max_items is None:
        return np.zeros(len(names), dtype=np.uint64)
    texts = ((settings.id + name).encode(errors="surrogatepass") for name in names)
    return np.array([int.from_bytes(hashlib.sha256(text).digest()[:8], "big") for text in texts], dtype=np.uint64)
