"""Elements of Hadamard matrices: of signs, with orthogonal rows."""

from __future__ import annotations

import functools
import math

import numpy as np


@functools.lru_cache(maxsize=64)
def order_for(width: int, rows: int) -> int:
    """Return the order of a matrix with at least `width` columns.

    The smallest one of which `rows` is a multiple, so that whole matrices are used; else the
    smallest one there is.
    """
    most = 1 << max(0, width - 1).bit_length()
    orders = [n for n in range(width, 2 * most + 1) if _split(n) is not None]
    return next((n for n in orders if rows % n == 0), orders[0])


def elements(order: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return elements of the matrix of an order, 1 or -1, shape (rows, columns).

    It is the Kronecker product of a matrix of Sylvester's, whose order is a power of two, and one
    of Paley's.

    Parameters
    ----------
    order : int
        One that `order_for` returns.
    rows, columns : ndarray of int
        Their numbers.

    References
    ----------
    R. E. A. C. Paley, "On orthogonal matrices", Journal of Mathematics and Physics 12 (1933).
    """
    split = _split(order)
    assert split is not None
    small, _ = split
    parity = np.bitwise_count(rows[:, None] // small & columns // small) & 1
    entries: np.ndarray = 1 - 2 * parity.astype(np.int8)
    if small > 1:
        entries = entries * _paley(small)[rows[:, None] % small, columns % small]
    return entries


@functools.lru_cache(maxsize=4096)
def _split(order: int) -> tuple[int, int] | None:
    """Return (order of Paley's factor, power of two); None if there is no such product."""
    small, power = order, 0
    while True:
        if small == 1 or (small > 2 and _prime_of(small) is not None):
            return small, power
        if small % 2:
            return None
        small, power = small // 2, power + 1


def _prime_of(order: int) -> int | None:
    """Return the prime that Paley's construction of an order starts from."""
    if order % 4 == 0 and _is_prime(order - 1):  # that is 3 modulo 4
        return order - 1
    q = order // 2 - 1
    return q if order % 4 == 0 and q % 4 == 1 and _is_prime(q) else None


def _is_prime(q: int) -> bool:
    return q > 1 and all(q % d for d in range(2, math.isqrt(q) + 1))


@functools.lru_cache(maxsize=8)
def _paley(order: int) -> np.ndarray:
    """Return a matrix of signs with orthogonal rows, shape (order, order), int8."""
    q = _prime_of(order)
    assert q is not None
    residue = np.full(q, -1, np.int8)
    residue[np.arange(q) ** 2 % q] = 1
    residue[0] = 0
    border = np.ones((q + 1, q + 1), np.int8)
    border[1:, 1:] = residue[(np.arange(q)[:, None] - np.arange(q)) % q]
    border[0, 0] = 0
    if q % 4 == 3:
        border[1:, 0] = -1
        return border + np.eye(q + 1, dtype=np.int8)
    plus = np.array([[1, 1], [1, -1]], np.int8)
    minus = np.array([[1, -1], [-1, -1]], np.int8)
    return np.kron(border, plus) + np.kron(np.eye(q + 1, dtype=np.int8), minus)
