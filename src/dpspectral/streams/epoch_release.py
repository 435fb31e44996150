"""The releases of one epoch: popularity, then which items are kept, then their matrix. Each is made once.

Every step is a file that is there or not (`folder.py`): this goes on after the last one, wherever a process was killed.
Who answers is the caller's: one holder of all past events (`OwnEvents`), or parties (`protocols/stream_parties.py`).
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dpspectral.data.tables import Table
from dpspectral.privacy.noise import Noise, NotPrivate, SecureNoise
from dpspectral.release.answer import prepaid, released
from dpspectral.release.stream_queries import StreamMatrix, StreamQuery
from dpspectral.streams import epoch_queries, running_sum
from dpspectral.streams.choices import added_items, chosen_floor
from dpspectral.streams.epoch_queries import Asked
from dpspectral.streams.folder import Epoch, StreamFolder
from dpspectral.streams.settings import StreamSettings


class Given(NamedTuple):
    """An answer's integers (of a matrix, the coarser ones), and the deviation of the noise that is in them.

    None: the answer was lost, and must not be asked for again. Later epochs go on without it.
    """

    numbers: NDArray[Any] | None
    sigma: float
    parties: dict[str, Any] | None = None  # public facts about who took part, where it was not one holder


class Answering(Protocol):
    """Who answers an epoch's queries."""

    def __call__(self, asked: Asked) -> Given: ...


class OwnEvents:
    """One holder of all past events, who has paid for all epochs."""

    def __init__(self, folder: StreamFolder, seeded: NotPrivate | None) -> None:
        self._folder, self._seeded = folder, seeded
        self._rows: tuple[int, Any] = (0, None)  # of an epoch: both of its queries ask the same ones

    def __call__(self, asked: Asked) -> Given:
        folder, (query, sigma) = self._folder, asked
        charge = prepaid(folder.ledger, folder.settings.id, folder.settings.budget.mu)
        if self._rows[0] != query.now:
            self._rows = (query.now, folder.log.rows())
        answer = released(query, self._rows[1], epoch_noise(query, self._seeded), sigma, charge)
        return Given(answer.numbers if isinstance(query, StreamMatrix) else answer.integers, sigma)


def take_in(folder: StreamFolder, table: Table | None, added: list[str]) -> None:
    """The events of the next epoch, and items that are appended to the list."""
    names = [*folder.items, *added]
    folder.log.take_in(table, _columns(table, names), _hashed(folder.settings, names), added)


def release_epoch(folder: StreamFolder, table: Table | None, added: list[str], answering: Answering) -> None:
    """Take in the next epoch and release it. At the end it is noted in the ledger: only then may it be given out."""
    number = len(folder.epochs) + 1
    if folder.log.epochs < number:
        take_in(folder, table, added)
    asked = epoch_queries.tally(folder.settings, number, len(folder.items))
    popularity = _answered(folder, number, "popularity", asked, answering)
    choice = _choice(folder, number, popularity)
    matrix = None
    if choice["floor"] is not None:
        kept = [*folder.kept, *choice["kept"]]
        started = [*folder.started, *[number] * len(choice["kept"])]
        asked = epoch_queries.matrix(folder.settings, number, len(folder.items), choice["floor"], kept, started)
        matrix = _answered(folder, number, "matrix", asked, answering)
        matrix["step"] = StreamMatrix.step(asked.sigma)
    done = Epoch(number, tuple(choice["kept"]), choice["floor"], len(folder.items), popularity, matrix)
    folder.write_text(number, "json", done.text())
    folder.epochs.append(done)
    folder.check()


def _answered(folder: StreamFolder, number: int, kind: str, asked: Asked, answering: Answering) -> dict[str, Any]:
    """What the manifest says about an answer, which is asked for unless it is there.

    Of parties, who took part and the noise that is in their sum are written down first.
    """
    file, beside = f"{kind}.npy", f"{kind}.parties.json"
    if not folder.file(number, file).exists():
        given = answering(asked)
        if given.parties is not None:
            folder.write_text(number, beside, json.dumps({"sigma": given.sigma, "parties": given.parties}))
        folder.write_array(number, file, np.empty(0, dtype=np.int16) if given.numbers is None else given.numbers)
    about: dict[str, Any] = {"sigma": asked.sigma, "digest": folder.digest(number, file)}
    if (told := folder.file(number, beside)).exists():
        about |= json.loads(told.read_text())
    lost = not folder.read_array(number, file).size and asked.query.shape != (0,)
    return {**about, "lost": True} if lost else about


def _choice(folder: StreamFolder, number: int, about: dict[str, Any]) -> dict[str, Any]:
    """The floor, and the items that are kept from now on."""
    if not folder.file(number, "choice.json").exists():
        settings, floor, more = folder.settings, folder.floor, list[int]()
        if "lost" not in about:
            items, lost = len(folder.items), folder.lost("popularity")
            popularity, factor = running_sum.popularity(folder, number, items, lost)
            floor = floor or chosen_floor(settings, popularity, about["sigma"] * factor, number)
            more = [] if floor is None else added_items(settings, popularity, folder.kept)
        folder.write_text(number, "choice.json", json.dumps({"floor": floor, "kept": more}))
    choice: dict[str, Any] = json.loads(folder.file(number, "choice.json").read_text())
    return choice


def epoch_noise(query: StreamQuery, seeded: NotPrivate | None) -> Noise:
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
