"""Fused loops over rows. Integer sums do not depend on order, so any split over threads gives the same bits.

`divide` rounds to the nearest integer (ties upward) by exact integer arithmetic: (v + 2^(shift−1)) >> shift.
The number of columns stays a run-time value: specialising kernels to it was several times slower. Unsigned indices
avoid the wrap-around of negative ones, and four rows at a time save loads and stores of the sum: 18% together.
"""
# mypy: disable-error-code="no-untyped-def"

import numpy as np

from dpspectral.core.jit import jit


@jit
def _gather(indices, start, stop, X, q):
    """q = Σ rows of X at some indices."""
    p = q.size
    q[:] = 0
    fours = start + (stop - start) // 4 * 4
    for e in range(start, fours, 4):
        a, b = np.uint64(indices[e]), np.uint64(indices[e + 1])
        c, d = np.uint64(indices[e + 2]), np.uint64(indices[e + 3])
        for j in range(p):
            q[j] += (X[a, j] + X[b, j]) + (X[c, j] + X[d, j])
    for e in range(fours, stop):
        i = np.uint64(indices[e])
        for j in range(p):
            q[j] += X[i, j]


@jit
def _scatter(indices, start, stop, q, Y):
    """Rows of Y at some indices += q."""
    p = q.size
    for e in range(start, stop):
        i = np.uint64(indices[e])
        for j in range(p):
            Y[i, j] += q[j]


@jit
def binary_gram(indptr, indices, weights, X, shift, Y):
    """Y += Σ_u r_u · divide(W_d · r_uᵀX) over the CSR rows of a 0/1 matrix. Sums of X have its type, Y may be wider."""
    p = X.shape[1]
    half = np.int64(1) << np.int64(shift) >> np.int64(1)
    q, share = np.empty(p, X.dtype), np.empty(p, Y.dtype)
    for u in range(indptr.size - 1):
        start, stop = indptr[u], indptr[u + 1]
        if start == stop:
            continue
        _gather(indices, start, stop, X, q)
        w = weights[stop - start]
        for j in range(p):
            share[j] = (np.int64(q[j]) * w + half) >> shift
        _scatter(indices, start, stop, share, Y)


@jit
def gram_squares(indptr, indices, weights, X, shift, squares):
    """squares[u] += Σ_j divide(W_d · r_uᵀX)_j²: of one row of what user u adds to `binary_gram`."""
    p = X.shape[1]
    half = np.int64(1) << np.int64(shift) >> np.int64(1)
    q = np.empty(p, X.dtype)
    for u in range(indptr.size - 1):
        start, stop = indptr[u], indptr[u + 1]
        if start == stop:
            continue
        _gather(indices, start, stop, X, q)
        w = weights[stop - start]
        for j in range(p):
            share = (np.int64(q[j]) * w + half) >> shift
            squares[u] += share * share


@jit
def root_above(value):
    """⌈√value⌉ of an integer from 0 to 2^62."""
    root = np.int64(np.sqrt(np.float64(value)))
    while root * root < value:
        root += 1
    while root > 0 and (root - 1) * (root - 1) >= value:
        root -= 1
    return root


@jit
def lengths(degrees, squares, longest, one, total):
    """total += (s, l − s, one − l) with l = ⌊one·‖z_u‖/longest⌋ and s = ⌊l²/one⌋, for every user who has an item."""
    for u in range(degrees.size):
        if degrees[u] > 0:
            part = one * min(root_above(degrees[u] * squares[u]), longest) // longest
            square = part * part // one
            total[0] += square
            total[1] += part - square
            total[2] += one - part


@jit
def clip_factors(degrees, squares, limit, bits, factors):
    """2^bits·min(1, limit/‖z_u‖), rounded down, where user u adds d rows whose squares sum up to squares[u] each."""
    one = np.int64(1) << np.int64(bits)
    for u in range(degrees.size):
        length = root_above(degrees[u] * squares[u])
        factors[u] = one if length <= limit else limit * one // length


@jit
def clipped_gram(indptr, indices, weights, X, shift, factors, bits, Y):
    """`binary_gram`, what user u adds multiplied by factors[u]/2^bits and rounded towards zero."""
    p = X.shape[1]
    half = np.int64(1) << np.int64(shift) >> np.int64(1)
    q, share = np.empty(p, X.dtype), np.empty(p, Y.dtype)
    for u in range(indptr.size - 1):
        start, stop = indptr[u], indptr[u + 1]
        if start == stop:
            continue
        _gather(indices, start, stop, X, q)
        w, factor = weights[stop - start], factors[u]
        for j in range(p):
            value = (np.int64(q[j]) * w + half) >> shift
            share[j] = value * factor >> bits if value >= 0 else -(-value * factor >> bits)
        _scatter(indices, start, stop, share, Y)


@jit
def largest_sums(weights, top, column):
    """The largest Σ of d entries of a column of X, and the largest such sum times W_d, over all d.

    X has this largest entry, and this norm of its longest column: d ones sum to at most min(d·top, √d·column).
    """
    plain = weighted = 0.0
    for d in range(weights.size):
        reach = min(d * top, np.sqrt(d) * column)
        plain, weighted = max(plain, reach), max(weighted, reach * weights[d])
    return plain, weighted


@jit
def float_gram(indptr, indices, weights, X, Y):
    """Y += Σ_u w_d r_u (r_uᵀX) over the CSR rows of a 0/1 matrix, in floating point; each column by itself."""
    p = X.shape[1]
    q = np.empty(p, X.dtype)
    for u in range(indptr.size - 1):
        start, stop = indptr[u], indptr[u + 1]
        if start == stop:
            continue
        _gather(indices, start, stop, X, q)
        w = weights[stop - start]
        for j in range(p):
            q[j] *= w
        _scatter(indices, start, stop, q, Y)


@jit
def row_sums(indptr, indices, X, Q):
    """Q = R·X for the CSR rows of a 0/1 matrix."""
    for u in range(indptr.size - 1):
        _gather(indices, indptr[u], indptr[u + 1], X, Q[u])


@jit
def column_sums(indptr, indices, weights, total):
    """total += Σ_u W_d r_u over the CSR rows of a 0/1 matrix."""
    for u in range(indptr.size - 1):
        w = weights[indptr[u + 1] - indptr[u]]
        for e in range(indptr[u], indptr[u + 1]):
            total[indices[e]] += w


@jit
def coverage(degrees, kept, one, total):
    """total += (one, 0, 0) for each user with items but no kept one; (0, s, one − s), s = ⌊one·k/d⌋, with k of d."""
    for u in range(degrees.size):
        d, k = degrees[u], kept[u]
        if d > 0 and k == 0:
            total[0] += one
        elif d > 0:
            part = one * k // d
            total[1] += part
            total[2] += one - part


@jit
def nonzero_columns(block, indptr, indices):
    """CSR pattern of a small dense block; returns the number of entries."""
    count = 0
    indptr[0] = 0
    for u in range(block.shape[0]):
        for i in range(block.shape[1]):
            if block[u, i] != 0:
                indices[count] = i
                count += 1
        indptr[u + 1] = count
    return count


@jit
def clip_row(x, norm, l1, bits, out):
    """The row clipped to ‖x‖₂ ≤ norm and ‖x‖₁ ≤ l1·norm, in units of norm·2^−bits, rounded towards zero.

    Sequential sums, so the result depends on the row alone, and zeros make no difference. The integers themselves are
    checked against the bound, whatever the rounding errors before.
    """
    one = 2.0**bits
    clip_row_to(x, norm, l1, one, one * one, out)


@jit
def clip_row_to(x, norm, l1, one, limit2, out):
    """The same in units of norm/one, with Σ out² ≤ limit2 (at most one²; integers below 2^53)."""
    top = 0.0
    for i in range(x.size):
        top = max(top, abs(x[i]))
    if top == 0.0 or not np.isfinite(top):  # callers refuse non-finite rows; here the loop must still end
        out[:] = 0
        return
    squares, absolute = 0.0, 0.0
    for i in range(x.size):
        t = x[i] / top
        squares += t * t
        absolute += abs(t)
    ratio = top / norm  # may be infinite: then the row is clipped
    factor = min(1.0 / np.sqrt(squares), l1 / absolute)
    clipped = ratio > factor
    limit1 = l1 * one
    while True:
        sum2, sum1 = 0.0, 0.0  # integers below 2^53, hence exact
        for i in range(x.size):
            t = np.trunc(x[i] / top * factor * one) if clipped else np.trunc(x[i] / norm * one)
            out[i] = t
            sum2 += t * t
            sum1 += abs(t)
        if sum2 <= limit2 and sum1 <= limit1:
            return
        if not clipped:
            clipped, factor = True, min(ratio, factor)
        factor *= 1.0 - 2.0**-40


@jit
def clip_rows(block, norm, l1, bits, out):
    for u in range(block.shape[0]):
        clip_row(block[u], norm, l1, bits, out[u])


@jit
def sparse_row_gram(indptr, indices, values, norm, l1, bits, X, shift, Y):
    """Y += Σ_u x_u · divide(x_uᵀX) over CSR rows, clipped and rounded to integers one by one."""
    p = X.shape[1]
    half = np.int64(1) << np.int64(shift) >> np.int64(1)
    longest = 0
    for u in range(indptr.size - 1):
        longest = max(longest, indptr[u + 1] - indptr[u])
    row = np.empty(longest)
    q = np.empty(p, np.int64)
    for u in range(indptr.size - 1):
        start, stop = indptr[u], indptr[u + 1]
        clip_row(values[start:stop], norm, l1, bits, row[: stop - start])
        q[:] = 0
        for e in range(start, stop):
            i, x = indices[e], np.int64(row[e - start])
            for j in range(p):
                q[j] += x * X[i, j]
        for j in range(p):
            q[j] = (q[j] + half) >> shift
        for e in range(start, stop):
            i, x = indices[e], np.int64(row[e - start])
            for j in range(p):
                Y[i, j] += x * q[j]
