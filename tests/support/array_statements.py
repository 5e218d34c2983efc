"""Statements of random programs that make arrays: elementwise, layout, folds, products.

For the random programs of `random_programs`.
"""

from __future__ import annotations

import math

from program_parts import REDUCTIONS
from program_writer import MOST_ELEMENTS, BaseWriter, broadcast


class ArrayWriter(BaseWriter):
    """Writes statements that make arrays out of others."""

    # -- statements: elementwise and layout ------------------------------------------------------

    def elementwise(self) -> None:
        a = self.var()
        assert a is not None
        if self.flip():
            expr, mag, exact = self.unary(a)
            self.let(expr, a.shape, mag, exact)
            return
        b = self.var(lambda b: broadcast(a.shape, b.shape) is not None)
        assert b is not None
        shape = broadcast(a.shape, b.shape)
        assert shape is not None
        expr, mag, exact = self.binary(a, b)
        self.let(expr, shape, mag, exact)

    def outer(self) -> None:
        """Broadcast a column against a row."""
        a, b = self.var(lambda v: len(v.shape) == 1), self.var(lambda v: len(v.shape) == 1)
        if a is None or b is None or a.size * b.size > MOST_ELEMENTS:
            return
        mag = a.cell.mag + b.cell.mag
        form = self.pick(
            (
                "{a}[:, None] - {b}",
                "{a}[:, np.newaxis] + {b}[None, :]",
                "np.subtract.outer({a}, {b})",
            )
        )
        self.let(form.format(a=a.name, b=b.name), (a.size, b.size), mag,
                 a.cell.exact and b.cell.exact)  # fmt: skip

    def view(self) -> None:
        a = self.var(lambda v: v.shape != ())
        if a is None:
            return
        n, rest = a.shape[0], a.shape[1:]
        options = [
            (f"{a.name}[::-1]", a.shape),
            (f"{a.name}[1:]", (max(n - 1, 0), *rest)),
            (f"{a.name}.T", a.shape[::-1]),
            (f"{a.name}.reshape(-1)", (a.size,)),
            (f"{a.name}[::2]", ((n + 1) // 2, *rest)),
            (f"{a.name}[:-1]", (max(n - 1, 0), *rest)),
            (f"{a.name}[None]", (1, *a.shape)),
            (f"{a.name}[..., :2]", (*a.shape[:-1], min(2, a.shape[-1]))),
            (f"np.flip({a.name})", a.shape),
        ]
        if n:
            options += [(f"{a.name}[0]", rest), (f"{a.name}[-1]", rest)]
        if len(a.shape) == 2:
            options.append((f"np.diagonal({a.name})", (min(a.shape),)))
        if 1 in a.shape:
            options.append((f"np.squeeze({a.name})", tuple(k for k in a.shape if k != 1)))
        expr, shape = self.pick(options)
        self.let_view(expr, a, shape, "diagonal" not in expr)

    def rearrange(self) -> None:
        """Make copies: joined, rolled, picked by lists of indices, sorted."""
        a = self.var(lambda v: v.shape != () and 2 * v.size <= MOST_ELEMENTS)
        if a is None:
            return
        x, n, rest = a.name, a.shape[0], a.shape[1:]
        options = [
            (f"np.concatenate([{x}, 0.5 * {x}])", (2 * n, *rest)),
            (f"np.roll({x}, 1, axis=0)", a.shape),
            (f"np.stack([{x}, -{x}], axis=-1)", (*a.shape, 2)),
            (f"{x}.copy()", a.shape),
            (f"np.roll({x}, -2)", a.shape),
            (f"np.sort({x}, axis=0)", a.shape),
            (f"np.repeat({x}, 2, axis=0)", (2 * n, *rest)),
            (f"np.tile({x}, (2,) + (1,) * {len(rest)})", (2 * n, *rest)),
            (f"np.pad({x}, 1)", tuple(k + 2 for k in a.shape)),
            (f"np.copy({x})", a.shape),
        ]
        if n:
            options += [
                (f"{x}[[0, -1, 0]]", (3, *rest)),
                (f"np.take({x}, [{n - 1}, 0], axis=0)", (2, *rest)),
                (f"{x}[np.arange({n}) % {max(n // 2, 1)}]", a.shape),
                (f"np.diff({x}, axis=0)", (n - 1, *rest)),
            ]
        if len(a.shape) == 2:
            options.append((f"np.tril({x})", a.shape))
        expr, shape = self.pick(options)
        mag = a.cell.mag * (2 if "diff" in expr else 1)
        self.let(expr, shape, mag, a.cell.exact)

    # -- statements: folds and products ----------------------------------------------------------

    def reduction(self) -> None:
        text, mag, needs, exact = self.pick(REDUCTIONS)
        a = self.var(lambda v: (v.size > 0 or not needs) and (v.shape != () or ".sum" not in text))
        if a is None:
            return
        axes: tuple[int, ...] | None = None
        if a.shape and self.flip():
            axes = (self.choose(len(a.shape)),)
            if len(a.shape) > 2 and self.flip():
                axes = (0, -1)
        keep = axes is not None and self.flip()
        numbers = range(len(a.shape)) if axes is None else [k % len(a.shape) for k in axes]
        n = math.prod(a.shape[k] for k in numbers)
        if axes is None:
            shape: tuple[int, ...] = ()
        elif keep:
            shape = tuple(1 if k in numbers else m for k, m in enumerate(a.shape))
        else:
            shape = tuple(m for k, m in enumerate(a.shape) if k not in numbers)
        axis = "" if axes is None else f"axis={axes[0] if len(axes) == 1 else axes}"
        axis += ", keepdims=True" if keep else ""
        if "np.prod" in text and n > 40:
            return
        expr = text.format(a=a.name, axis=f", {axis}" if axis else "", axis_only=axis)
        self.let(expr, shape, mag(a.cell.mag, n), exact and a.cell.exact)

    def normalise(self) -> None:
        """Softmax and the like along the last axis."""
        a = self.var(lambda v: v.size > 0 and v.shape != ())
        if a is None:
            return
        x, v = a.name, self.name()
        kind = self.choose(3)
        if kind == 0:
            self.line(f"{v} = np.exp({x} - np.max({x}, axis=-1, keepdims=True))")
            expr, mag = f"{v} / np.sum({v}, axis=-1, keepdims=True)", 1.0
        elif kind == 1:
            self.line(f"{v} = {x} - np.mean({x}, axis=-1, keepdims=True)")
            expr = f"{v} / np.sqrt(np.mean({v} ** 2, axis=-1, keepdims=True) + 0.1)"
            mag = 7 * a.cell.mag
        else:
            self.line(f"{v} = np.cumsum({x}, axis=-1)")
            expr, mag = f"{v} / (1 + {v}[..., -1:] ** 2)", a.cell.mag * a.shape[-1]
        self.let(expr, a.shape, mag, False)

    def product(self) -> None:
        a = self.var(lambda v: len(v.shape) in (1, 2))
        if a is None:
            return
        k = a.shape[-1]
        b = self.var(lambda v: len(v.shape) in (1, 2) and v.shape[0] == k)
        if b is None:
            return
        form = self.pick(("{a} @ {b}", "np.dot({a}, {b})", "np.matmul({a}, {b})"))
        shape = (*a.shape[:-1], *b.shape[1:])
        if math.prod(shape) > MOST_ELEMENTS:
            return
        mag = a.cell.mag * b.cell.mag * max(k, 1)
        self.let(form.format(a=a.name, b=b.name), shape, mag, False)

    def einsum(self) -> None:
        a = self.var(lambda v: len(v.shape) == 2)
        if a is None:
            return
        n, m = a.shape
        form, shape, times = self.pick((
            ("np.einsum('ij,ij->i', {a}, {a})", (n,), m),
            ("np.einsum('ij,kj->ik', {a}, {a})", (n, n), m),
            ("np.einsum('ij->ji', {a})", (m, n), 0),
        ))  # fmt: skip
        if math.prod(shape) > MOST_ELEMENTS:
            return
        mag = a.cell.mag**2 * times
        if times:
            self.let(form.format(a=a.name), shape, mag, False)
        else:
            self.let_view(form.format(a=a.name), a, shape)
