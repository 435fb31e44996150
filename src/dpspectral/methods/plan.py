"""Compare the methods before any private data is touched, from its public shape and a stand-in for it."""

from __future__ import annotations

from dataclasses import dataclass

from dpspectral.core import checks
from dpspectral.methods.call import warn_large_delta
from dpspectral.methods.catalogue import automatic_catalogue
from dpspectral.methods.coverage import FEW
from dpspectral.methods.prediction import Option, Predictor
from dpspectral.methods.schedules import Schedule, schedules
from dpspectral.methods.stand_in import StandIn, typical
from dpspectral.privacy.budget import Budget
from dpspectral.privacy.units import Interaction, PatternUnit, User

_ALIKE = 1.05  # predicted errors this close are the same, and the faster method is recommended


@dataclass(frozen=True)
class Plan:
    options: tuple[Option, ...]
    recommended: Option | None
    stand_in: StandIn
    users: int
    rank: int
    budget: Budget
    unit: PatternUnit
    upload: int | None
    origin: str  # what the prediction rests on
    schedules: tuple[Schedule, ...] = ()  # ways to have a result in every epoch, if that was asked for

    @property
    def command(self) -> str:
        """How to do it, for a terminal."""
        return f"dpspectral fit DATA --items ITEMS {self.options_of_fit} --out basis.npz"

    @property
    def options_of_fit(self) -> str:
        """The recommendation as options of `dpspectral fit`."""
        if self.recommended is None:
            return ""
        best = self.recommended
        words = [
            f"--rank {self.rank} --epsilon {self.budget.epsilon:g} --delta {self.budget.delta:g}",
            "--unit user" if isinstance(self.unit, User) else "",
            f"--method {'dense' if best.columns is None else 'power'}",
            f"--oversampling {best.columns - self.rank}" if best.columns is not None else "",
        ]
        if best.name.endswith("all items"):
            words.append(f"--catalogue none --floor {best.floor}")
        elif self.unit.floor is not None and self.unit.floor > 1:
            words.append(f"--floor {self.unit.floor}")
        return " ".join(word for word in words if word)

    @property
    def warnings(self) -> list[str]:
        """What to know before the budget is spent."""
        best = self.recommended
        if best is None or best.users >= FEW:
            return []
        return [
            f"A long tail: noise leaves about {best.items:,} of {len(self.stand_in.popularity):,} items, with "
            f"{best.interactions:.0%} of the interactions; about {1 - best.users:.0%} of the users have none of them, "
            "and can be served by popularity only. Public facts about items (item_features), more ε or more users "
            "would help."
        ]

    @property
    def reason(self) -> str:
        """The recommendation in words."""
        if self.recommended is None:
            return "No method fits the upload limit: allow more bytes per party, or ask for fewer components."
        best = self.recommended
        kind = "dense release" if best.columns is None else f"power method with {best.columns} columns"
        least = min(option.error for option in self.options if option.fits)
        if best.error > 0.97:
            expected = "nothing but noise can be expected: more budget, more users or fewer items are needed"
        elif best.ratio < 1:
            expected = "all components can be expected"
        else:
            expected = "not all components can be expected"
        words = [
            f"{best.name}: a {kind} on {best.items} items "
            + (
                "has the smallest predicted error"
                if best.error == least
                else "is the fastest of the most accurate ones"
            )
            + f" (predicted error {best.error:.2f})."
        ]
        if self.upload is not None:
            words.append(f"Each party would send {best.upload / 1e6:.3g} MB.")
        words.append(f"About {best.users:.0%} of the users would have a kept item.")
        words.append(f"Noise is {best.ratio:.2g} times eigenvalue number {self.rank}: {expected}.")
        return " ".join(words)


def plan(
    users: int,
    items: int,
    rank: int,
    *,
    budget: Budget,
    unit: PatternUnit | None = None,
    per_user: float | None = None,
    public: StandIn | None = None,
    upload: int | None = None,
    epochs: int | None = None,
    half_life: float | None = None,
) -> Plan:
    """Compare methods for data of a given shape.

    Parameters
    ----------
    users, items, rank : int
        The public shape, and how many components are wanted.
    budget : Budget
        What a run would spend.
    unit : Interaction or User, optional
        Who is protected; `Interaction()` if not given.
    per_user : float, optional
        Interactions per user; the stand-in's if there is one, else 50 (or a third of the items).
    public : StandIn, optional
        `stand_in(R)` of a data set declared public; a typical spectrum if not given.
    upload : int, optional
        Most bytes that each party can send.
    epochs : int, optional
        Also compare ways to have a result in each of so many epochs on this budget (`PrivateStream`).
    half_life : float, optional
        Of a stream without an end; half of the epochs if not given.
    """
    checks.integer("users", users, low=1)
    checks.integer("items", items, low=2)
    checks.integer("rank", rank, low=1, high=items)
    checks.optional_integer("upload", upload, low=1)
    unit = Interaction() if unit is None else unit
    if not isinstance(unit, PatternUnit):
        raise TypeError(f"unit must be Interaction(...) or User(...), got {unit!r}")
    if not isinstance(budget, Budget):
        raise TypeError(f"budget must be a Budget(epsilon=..., delta=...), got {budget!r}")
    if per_user is not None:
        per_user = checks.real("per_user", per_user, low=0, high=items)
    guess = min(50.0, items / 3)
    known = typical(items, per_user or guess) if public is None else public.with_items(items, per_user)
    origin = known.source
    if public is not None and known is not public:
        origin += f", stretched from {len(public.popularity)} items and {public.per_user:.3g} interactions per user"
    warn_large_delta(budget, users)
    predictor = Predictor(users, items, rank, budget, unit, known, upload)
    options = []
    if isinstance(unit, Interaction):
        options.append(predictor.published())
    automatic = automatic_catalogue(unit, items, rank, budget.mu)
    for config in (None,) if automatic is None else (None, automatic):
        options += [predictor.power(config), predictor.dense(config)]
    possible = [option for option in options[isinstance(unit, Interaction) :] if option.fits]
    least = min((option.error for option in possible), default=0.0)
    alike = [option for option in possible if option.error <= _ALIKE * least]
    best = min(alike, key=lambda option: option.seconds, default=None)
    compared: tuple[Schedule, ...] = ()
    if epochs is not None:

        def predicted(part: Budget) -> float:
            return Predictor(users, items, rank, part, unit, known, None).dense(automatic).error

        compared = schedules(predicted, budget, unit, epochs, half_life)
    return Plan(tuple(options), best, known, users, rank, budget, unit, upload, origin, compared)
