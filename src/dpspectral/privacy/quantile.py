"""The normal quantile of 53 random bits, by tabulated polynomials with a known error bound.

(0, ½) is cut into octaves and these into 32 cells; on each cell a polynomial of degree 7 through Chebyshev nodes. Its
coefficients fill one cache line. `ERROR` only determines how many samples are recomputed in high precision (noise.py),
never their values, so a machine may fuse multiplications and additions.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpspectral.core.jit import jit

ERROR = 2.0**-47  # |result − x| ≤ ERROR·(1 + |x|); largest observed against 200-bit arithmetic: 2^−50 (test_noise.py)
CELL_BITS = 5  # cells of an octave
DEGREE = 7
_FIRST_OCTAVE, _OCTAVES = -54, 53  # the smallest u is 2^−54


def _polynomials() -> NDArray[np.float64]:
    """Coefficients by cell, lowest first, in the cell's own coordinate from −1 to 1."""
    nodes = np.cos(np.pi * (np.arange(DEGREE + 1) + 0.5) / (DEGREE + 1))
    starts = 1 + np.arange(2**CELL_BITS) * 2.0**-CELL_BITS
    octaves = 2.0 ** np.arange(_FIRST_OCTAVE, _FIRST_OCTAVE + _OCTAVES)
    u = octaves[:, None, None] * (starts[:, None] + (nodes + 1) * 2.0 ** -(CELL_BITS + 1))
    values = ndtri(u).reshape(-1, DEGREE + 1)
    return np.ascontiguousarray(np.linalg.solve(np.vander(nodes, increasing=True), values.T).T)


TABLE = _polynomials()
FIRST_CELL = int(np.float64(2.0**_FIRST_OCTAVE).view(np.int64)) >> (52 - CELL_BITS)


@partial(jit, fastmath={"contract"})
def nearest(raw, sigma, table, error, out, doubtful):  # type: ignore[no-untyped-def]
    """out = nearest integers of ±σx, and the places where they are not certain; returns how many these are.

    The upper 52 bits k of a raw number stand for u = (k + ½) 2^−53 (exact in float64), the lowest for the sign. Over
    the cell of k the quantile moves from its midpoint by at most 2^−54/φ, and φ ≥ 0.797·Φ on the lower half, hence by
    at most 0.63/k (everything is doubtful at k = 0).
    """
    count = 0
    for i in range(raw.size):
        k = np.float64(np.int64(raw[i] >> np.uint64(12)))
        bits = np.float64((k + 0.5) * 2.0**-53).view(np.int64)
        c = table[np.uint64((bits >> np.int64(52 - CELL_BITS)) - np.int64(FIRST_CELL))]
        within = np.int64((bits & np.int64((1 << (52 - CELL_BITS)) - 1)) | np.int64(1023 << 52)).view(np.float64)
        t = within * 2.0 ** (CELL_BITS + 1) - (2.0 ** (CELL_BITS + 1) + 1)
        y = sigma * (((((((c[7] * t + c[6]) * t + c[5]) * t + c[4]) * t + c[3]) * t + c[2]) * t + c[1]) * t + c[0])
        integer = np.rint(y)
        if not (0.5 - abs(y - integer) - (sigma - y) * error) * k > 0.63 * sigma:
            doubtful[count] = i
            count += 1
        sign = -np.int64(raw[i] & np.uint64(1))
        out[i] = (np.int64(integer) ^ sign) - sign
    return count
