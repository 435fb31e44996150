"""One Gaussian release, as it is written down before it exists."""

from __future__ import annotations

from dataclasses import dataclass

from dpspectral.privacy import checks


@dataclass(frozen=True, slots=True)
class Release:
    """One Gaussian release. `sensitivity` and `sigma` are in integer steps worth `step` each; μ is their ratio."""

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
        checks.flag("private", self.private)
        checks.real("sensitivity", self.sensitivity, low=0)
        checks.real("sigma", self.sigma, low=0)
        checks.real("step", self.step, low=0)

    @property
    def mu(self) -> float:
        return self.sensitivity / self.sigma
