"""What a protocol between parties asks of the owner of data."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpspectral.protocols.common.question import Shares


class Holder(Protocol):
    """The owner of data, as a protocol sees it."""

    def answer(self, question: bytes, setup: Shares) -> tuple[NDArray[np.int64], int, object]:
        """Its own integers, noise share included, the ring's bits, and a receipt; raises if it does not want to answer.

        Charged by then: once the answer has left, others can open the sum.
        """

    def release(self, receipt: object) -> None:
        """That answer is about to be opened with this party's help. Raises if it does not want that."""

    def withdraw(self, receipt: object) -> None:
        """That answer will never be opened: it did not leave, or its round is known to have ended before."""
