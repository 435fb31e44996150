"""One Gaussian release, as it is written down before it exists."""

from __future__ import annotations

from dataclasses import dataclass

from dpspectral.core import checks


@dataclass(frozen=True, slots=True)
class Release:
    """One Gaussian release, with μ = sensitivity/sigma.

    Parameters
    ----------
    what : str
        What was released, in words.
    protects : str
        The neighbouring relation, such as "interaction/add-remove".
    sensitivity : float
        How far neighbours can be apart, in integer steps.
    sigma : float
        The noise's standard deviation, in integer steps.
    step : float
        What one step is worth.
    private : bool
        False if the noise was seeded by hand.
    """

    what: str
    protects: str
    sensitivity: float
    sigma: float
    step: float = 1.0
    private: bool = True

    def __post_init__(self) -> None:
        for name in ("what", "protects"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be text, got {getattr(self, name)!r}")
        object.__setattr__(self, "private", checks.flag("private", self.private))
        for name in ("sensitivity", "sigma", "step"):  # as floats: a file gives them back as such
            object.__setattr__(self, name, checks.real(name, getattr(self, name), low=0))

    @property
    def mu(self) -> float:
        return self.sensitivity / self.sigma
