"""Products summed over shared axes.

References
----------
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44.
- S. Laue, M. Mitterreiter, J. Giesen, "Computing higher order derivatives of matrix and tensor
  expressions", NeurIPS 2018.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from adarray.base.op import Contraction, Layout, Op, composite, register
from adarray.batching.layouts import multiplied, summed
from adarray.core.dispatch import apply, run
from adarray.core.protocol import plain
from adarray.core.trace import Handle, is_weak
from adarray.ops import creation
from adarray.ops.common import s, unbroadcast
from adarray.ops.sliding import convolved


def _t(x: Any) -> Any:
    return np.swapaxes(x, -1, -2)


def _matmul_vjp_x(g: Any, out: Any, x: Any, y: Any) -> Any:
    if x.ndim == 1 and y.ndim == 1:
        return g * y
    if y.ndim == 1:
        return unbroadcast(np.expand_dims(g, -1) * y, x.shape)
    if x.ndim == 1:
        g = np.expand_dims(g, -2)
        return np.reshape(unbroadcast(run(matmul, g, _t(y)), (1, *x.shape)), x.shape)
    return unbroadcast(run(matmul, g, _t(y)), x.shape)


def _matmul_vjp_y(g: Any, out: Any, x: Any, y: Any) -> Any:
    if x.ndim == 1 and y.ndim == 1:
        return g * x
    if x.ndim == 1:
        return unbroadcast(np.expand_dims(x, -1) * np.expand_dims(g, -2), y.shape)
    if y.ndim == 1:
        if x.ndim == 2:
            return run(matmul, _t(x), g)
        return unbroadcast(run(matmul, _t(x), np.expand_dims(g, -1))[..., 0], y.shape)
    if y.ndim == 2:  # a stack of matrices by one matrix: one long product, not a sum of many
        rows = math.prod(g.shape[:-1])
        x, g = np.reshape(x, (rows, x.shape[-1])), np.reshape(g, (rows, g.shape[-1]))
    return unbroadcast(run(matmul, _t(x), g), y.shape)


def _matmul_samples(rng: np.random.Generator) -> list[Any]:
    n = rng.normal
    return [
        s(n(size=(3, 4)), n(size=(4, 2))),
        s(n(size=(4, 3)).T, n(size=(2, 4)).T),
        s(n(size=4), n(size=4)),
        s(n(size=4), n(size=(4, 2))),
        s(n(size=(3, 4)), n(size=4)),
        s(n(size=(2, 3, 4)), n(size=(4, 2))),
        s(n(size=(2, 1, 3, 4)), n(size=(5, 4, 2))),
        s(n(size=(3, 4)), n(size=(2, 4, 2))),
        s(n(size=(2, 3, 4)), n(size=4)),
        s(n(size=4), n(size=(2, 4, 3))),
        s(np.zeros((0, 4)), n(size=(4, 2))),
        s(n(size=(3, 0)), np.zeros((0, 2))),
    ]


matmul = register(
    Op(
        "matmul",
        np.matmul,
        Contraction(),
        [_matmul_vjp_x, _matmul_vjp_y],
        jvp="linear",
        samples=_matmul_samples,
        batch=multiplied,
        operands=("x1", "x2"),
        signature="x1, x2, /, out=None, *, casting='same_kind', order='K', dtype=None, subok=True",
    )
)


_COERCED = frozenset({list, tuple, bool, int, float, complex})


def _no_lists(*operands: Any) -> list[Any]:
    """Return the operands with lists, which may hold ADArrays, as arrays; numbers, too.

    These functions take Python's numbers for arrays, whose dtype does not yield to others.
    """
    return [creation.asarray(x) if type(x) in _COERCED or is_weak(x) else x for x in operands]


def _is_plain_scalar(x: Any) -> bool:
    return np.ndim(x) == 0


@composite(np.dot)
def _dot(a: Any, b: Any, out: Any = None) -> Any:
    a, b = _no_lists(a, b)
    if not (isinstance(a, Handle) or isinstance(b, Handle)):  # `out` alone is one
        r = np.dot(a, b)
    elif _is_plain_scalar(a) or _is_plain_scalar(b):
        r = np.multiply(a, b)
    elif np.ndim(a) <= 2 and np.ndim(b) <= 2:
        r = apply(matmul, (a, b))
    elif np.ndim(b) == 1:
        r = np.tensordot(a, b, ([-1], [0]))
    else:
        r = np.tensordot(a, b, ([-1], [-2]))
    return r if out is None else np.positive(r, out=out)


@composite(np.vdot)
def _vdot(a: Any, b: Any, /) -> Any:
    a, b = _no_lists(a, b)
    return np.dot(np.conjugate(np.ravel(a)), np.ravel(b))


@composite(np.inner)
def _inner(a: Any, b: Any, /) -> Any:
    a, b = _no_lists(a, b)
    if _is_plain_scalar(a) or _is_plain_scalar(b):
        return np.multiply(a, b)
    if np.ndim(a) == np.ndim(b) == 1:
        return np.dot(a, b)  # a scalar
    return np.tensordot(a, b, ([-1], [-1]))


@composite(np.outer)
def _outer(a: Any, b: Any, out: Any = None) -> Any:
    a, b = _no_lists(a, b)
    r = np.multiply(np.reshape(a, (-1, 1)), np.reshape(b, (1, -1)))
    return r if out is None else np.positive(r, out=out)


@composite(np.tensordot)
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Bring the summed axes together and multiply two matrices, as NumPy does."""
    a = a if hasattr(a, "ndim") else creation.asarray(a)
    b = b if hasattr(b, "ndim") else creation.asarray(b)
    if np.ndim(axes) == 0:
        n = int(axes)
        axes_a, axes_b = list(range(a.ndim - n, a.ndim)), list(range(n))
    else:
        axes_a, axes_b = (list(np.atleast_1d(np.asarray(x, dtype=int))) for x in axes)
    if len(axes_a) != len(axes_b):
        raise ValueError("shape-mismatch for sum")
    axes_a = [normalize_axis_index(int(x), a.ndim) for x in axes_a]
    axes_b = [normalize_axis_index(int(x), b.ndim) for x in axes_b]
    if any(a.shape[i] != b.shape[j] for i, j in zip(axes_a, axes_b, strict=True)):
        raise ValueError(
            f"shape-mismatch for sum: operands 0 and 1 have shapes {a.shape} and {b.shape}, "
            f"summed over axes {axes_a} and {axes_b}"
        )
    rest_a = [i for i in range(a.ndim) if i not in axes_a]
    rest_b = [i for i in range(b.ndim) if i not in axes_b]
    summed = 1
    for i in axes_a:
        summed *= a.shape[i]
    shape_a, shape_b = [a.shape[i] for i in rest_a], [b.shape[i] for i in rest_b]
    rows = int(np.prod(shape_a, dtype=int))
    columns = int(np.prod(shape_b, dtype=int))
    left = np.reshape(np.transpose(a, rest_a + axes_a), (rows, summed))
    right = np.reshape(np.transpose(b, axes_b + rest_b), (summed, columns))
    return np.reshape(run(matmul, left, right), tuple(shape_a + shape_b))


# -- einsum ------------------------------------------------------------------------------------


def _einsum_values(operands: Any, subscripts: str) -> Any:
    return np.einsum(subscripts, *operands, optimize=len(operands) > 2)


def _explicit(subscripts: str, operands: Any) -> str:
    """Return the subscripts with ellipses spelt out and an explicit result."""
    subscripts = subscripts.replace(" ", "")
    left, arrow, right = subscripts.partition("->")
    terms = left.split(",")
    used = set(subscripts)
    spare = [c for c in map(chr, [*range(65, 91), *range(97, 123)]) if c not in used]
    widest = ""
    for k, (term, x) in enumerate(zip(terms, operands, strict=True)):
        if "..." in term:
            n = np.ndim(x) - len(term.replace("...", ""))
            letters = "".join(spare[:n])
            # Ellipsis axes are aligned at the right: the last letter is the last axis.
            terms[k] = (term, letters[::-1])  # type: ignore[call-overload]
            widest = max(widest, letters, key=len)
    terms = [t if isinstance(t, str) else t[0].replace("...", t[1]) for t in terms]
    if arrow:
        if widest and "..." not in right:
            raise ValueError(
                "output has more dimensions than subscripts given in einstein sum, but no '...' "
                "ellipsis provided to broadcast the extra dimensions."
            )
        right = right.replace("...", widest[::-1])
    else:
        joined = "".join(terms)
        right = widest[::-1] + "".join(
            sorted(c for c in set(joined) if joined.count(c) == 1 and c not in widest)
        )
    return ",".join(terms) + "->" + right


def _einsum_vjp(g: Any, i: int, out: Any, *operands: Any, subscripts: str) -> Any:
    """Contract `g` with the other operands; repeated letters land on diagonals."""
    left, right = subscripts.split("->")
    terms = left.split(",")
    mine, shape = terms[i], operands[i].shape
    others = [t for k, t in enumerate(terms) if k != i]
    values = [x for k, x in enumerate(operands) if k != i]
    letters = "".join(dict.fromkeys(mine))
    known = set(right).union(*others)
    reached = "".join(c for c in letters if c in known)
    back = np.einsum(",".join([right, *others]) + "->" + reached, g, *values)
    # Letters found nowhere else were summed over alone: the cotangent is constant there.
    sizes = {c: n for c, n in zip(mine, shape, strict=True) if n != 1}
    full = tuple(sizes.get(c, 1) for c in letters)
    back = np.reshape(back, tuple(n if c in known else 1
                                  for c, n in zip(letters, _sizes(back, reached, letters),
                                                  strict=True)))  # fmt: skip
    back = _match(back, full)
    if len(letters) == len(mine):
        return back
    dense = np.zeros_like(back, shape=shape)
    grid = np.ix_(*(np.arange(n) for n in full))
    dense[tuple(grid[letters.index(c)] for c in mine)] = back
    return dense


def _sizes(back: Any, reached: str, letters: str) -> tuple[int, ...]:
    known = dict(zip(reached, back.shape, strict=True))
    return tuple(known.get(c, 1) for c in letters)


def _match(back: Any, full: tuple[int, ...]) -> Any:
    """Sum over axes that the operand has with length 1, and spread over those it alone has."""
    axes = tuple(k for k, n in enumerate(full) if n == 1 and back.shape[k] != 1)
    if axes:
        back = np.sum(back, axis=axes, keepdims=True)
    return back if back.shape == full else np.broadcast_to(back, full)


def _einsum_jvp(t: Any, i: int, out: Any, *operands: Any, subscripts: str) -> Any:
    return np.einsum(subscripts, *operands[:i], t, *operands[i + 1 :])


einsum = register(
    Op(
        "einsum",
        _einsum_values,
        Contraction(),
        [_einsum_vjp],
        jvp=[_einsum_jvp],
        samples=lambda rng: [
            s([rng.normal(size=(2, 3)), rng.normal(size=(3, 4))], "ij,jk->ik"),
            s([rng.normal(size=(2, 3)), rng.normal(size=(2, 3))], "ij,ij->"),
            s([rng.normal(size=(3, 3))], "ii->i"),
            s([rng.normal(size=(3, 3))], "ii->"),
            s([rng.normal(size=(2, 3, 4))], "ijk->ki"),
            s([rng.normal(size=(2, 3)), rng.normal(size=4)], "ij,k->ik"),
            s(
                [rng.normal(size=(2, 3)), rng.normal(size=(3, 4)), rng.normal(size=(4, 2))],
                "ij,jk,kl->il",
            ),
            s([rng.normal(size=(5, 2, 3)), rng.normal(size=(1, 3, 4))], "aij,ajk->aik"),
        ],
        operands=("*operands",),
        params=("subscripts",),
        signature="operands, subscripts",
        batch=summed,
        evaluate=_einsum_values,
    )
)


def _picked(a: Any, subscripts: str) -> Any:
    return np.einsum(subscripts, a)


einsum_view = register(
    Op(
        "einsum_view",
        _picked,
        Layout(),
        [lambda g, out, a, subscripts: _einsum_vjp(g, 0, out, a, subscripts=subscripts)],
        jvp="linear",
        drops=True,
        samples=lambda rng: [
            s(rng.normal(size=(3, 3)), "ii->i"),
            s(rng.normal(size=(2, 3, 4)), "ijk->kij"),
            s(rng.normal(size=(3, 2, 3)), "iji->ji"),
        ],
        operands=("a",),
        params=("subscripts",),
        batch=summed,
        note="einsum of one operand without a sum: a writeable view, as in NumPy",
    )
)


@composite(np.einsum)
def _einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    """``np.einsum`` in both forms; a path of NumPy's is followed pair by pair."""
    if kwargs:  # dtype, order, casting: NumPy's checks and its own result say what is wanted
        expected = np.einsum(*plain(operands), **plain(kwargs))
    if not isinstance(operands[0], str):
        operands = _from_sublists(operands)
    subscripts, *tensors = operands
    arrays = [a if hasattr(a, "ndim") else creation.asarray(a) for a in tensors]
    text = _explicit(subscripts, arrays)
    if kwargs:
        dtype = kwargs.get("dtype")
        arrays = [a if dtype is None or a.dtype == dtype else np.astype(a, dtype) for a in arrays]
    term, _, right = text.partition("->")
    if len(arrays) > 2 and optimize is not False:
        r = _along_path(text, arrays, optimize)
    elif len(arrays) == 1 and set(term) == set(right) and not kwargs and out is None:
        return apply(einsum_view, (arrays[0],), {"subscripts": text})
    else:
        r = convolved(text, *arrays) if len(arrays) == 2 and not kwargs else None
        if r is None:
            r = apply(einsum, tuple(arrays), {"subscripts": text})
    if kwargs and str(kwargs.get("order")).upper() in ("C", "F", "A"):
        r = np.copy(r, order="C" if expected.flags.c_contiguous else "F")
    return r if out is None else np.positive(r, out=out)


def _from_sublists(operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Turn ``einsum(a, [0, 1], b, [1, 2], [0, 2])`` into the form with a string."""
    letters = [chr(c) for c in [*range(97, 123), *range(65, 91)]]

    def text(sub: Any) -> str:
        return "".join("..." if i is Ellipsis else letters[i] for i in sub)

    pairs = len(operands) // 2
    arrays = [operands[2 * k] for k in range(pairs)]
    terms = [text(operands[2 * k + 1]) for k in range(pairs)]
    right = "->" + text(operands[-1]) if len(operands) % 2 else ""
    return (",".join(terms) + right, *arrays)


def _along_path(text: str, arrays: list[Any], optimize: Any) -> Any:
    """Contract in the order that opt_einsum finds, or that `optimize` asks NumPy for or gives."""
    if optimize is True:
        import opt_einsum  # not needed before

        shapes = [tuple(a.shape) for a in arrays]
        path = opt_einsum.contract_path(text, *shapes, shapes=True)[0]
    else:
        path = np.einsum_path(text, *plain(arrays), optimize=optimize)[0][1:]
    left, right = text.split("->")
    terms, arrays = left.split(","), list(arrays)
    for step, indices in enumerate(path):
        chosen = sorted(indices, reverse=True)
        operands = [(terms.pop(i), arrays.pop(i)) for i in chosen]
        wanted = set(right).union(*terms)
        letters = dict.fromkeys("".join(term for term, _ in operands))
        last = step == len(path) - 1
        result = right if last else "".join(c for c in letters if c in wanted)
        pair = ",".join(term for term, _ in operands) + "->" + result
        terms.append(result)
        arrays.append(apply_einsum(pair, [x for _, x in operands]))
    return arrays[0]


def apply_einsum(subscripts: str, arrays: list[Any]) -> Any:
    """Apply one einsum, plain or traced."""
    if any(hasattr(a, "_node") for a in arrays):
        return apply(einsum, tuple(arrays), {"subscripts": subscripts})
    return np.einsum(subscripts, *arrays)
