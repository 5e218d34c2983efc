"""CUDA's functions of a warp in a kernel's source: shuffles, votes, matches and reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adarray.compiler.ir.loopir import Const, Expr, Var
from adarray.compiler.ir.threads import WarpOp
from adarray.errors import KernelError
from adarray.kernels import build
from adarray.kernels.declarations import TranslationUnit, line_of
from adarray.kernels.types import promoted
from adarray.kernels.values import NumberValue

if TYPE_CHECKING:
    from adarray.kernels.lower import SourceLowering

_SHUFFLES = {"__shfl_sync": "idx", "__shfl_up_sync": "up", "__shfl_down_sync": "down",
             "__shfl_xor_sync": "xor"}  # fmt: skip
_REDUCTIONS = {"__reduce_add_sync": "add", "__reduce_min_sync": "minimum",
               "__reduce_max_sync": "maximum", "__reduce_and_sync": "and",
               "__reduce_or_sync": "or", "__reduce_xor_sync": "xor_all"}  # fmt: skip
_VOTES = frozenset(("__ballot_sync", "__any_sync", "__all_sync"))
_MATCHES = frozenset(("__match_any_sync", "__match_all_sync"))
NAMES = frozenset((*_SHUFFLES, *_REDUCTIONS, *_VOTES, *_MATCHES, "__activemask"))
_COUNTS = dict.fromkeys(_SHUFFLES, (3, 4)) | {"__activemask": (0,), "__match_all_sync": (3,)}
_ZERO = build.const(0, "int32")


def are_in(ast: Any, node: Any, unit: TranslationUnit, depth: int = 8) -> bool:
    """Whether a statement calls a function of a warp, or a function of the source that does."""
    if isinstance(node, ast.FuncCall):
        name = getattr(node.name, "name", "")
        if name in NAMES:
            return True
        bodies = [f.body for f in unit.functions.get(name, [])] if depth else []
        if any(are_in(ast, body, unit, depth - 1) for body in bodies):
            return True
    return node is not None and any(are_in(ast, c, unit, depth) for _, c in node.children())


class WarpReader:
    """Reads calls of a warp's functions, into the statements of a `SourceLowering`."""

    def __init__(self, lowering: SourceLowering) -> None:
        self.low = lowering

    def call(self, name: str, nodes: list[Any], node: Any) -> NumberValue:
        """Return what a call returns.

        Raises
        ------
        KernelError
            If its arguments are not those of the function, or not supported.
        """
        line = line_of(node)
        if len(nodes) not in _COUNTS.get(name, (2,)):
            raise KernelError(f"{name} takes another number of arguments", line)
        if name == "__activemask":
            return self._emit("ballot", build.const(True, "bool"), _ZERO, None)
        mask = self._mask(nodes[0])
        value = self.low.expressions.number(nodes[1])
        if name in _SHUFFLES:
            lane = build.cast(self.low.expressions.number(nodes[2]), "int32")
            width = self._width(nodes[3], name, line) if len(nodes) == 4 else 32
            value = build.cast(value, promoted(value.dtype))
            return self._emit(_SHUFFLES[name], value, lane, mask, width)
        if name in _REDUCTIONS:
            value = build.cast(value, promoted(value.dtype))
            if value.dtype not in ("int32", "uint32"):
                raise KernelError(f"{name} takes an int or an unsigned int", line)
            return self._emit(_REDUCTIONS[name], value, _ZERO, mask)
        if name in _MATCHES:
            return self._match(value, mask, nodes, node)
        truth = build.truth(value)
        if name == "__ballot_sync":
            return self._emit("ballot", truth, _ZERO, mask)
        votes = self._emit("ballot", truth if name == "__any_sync" else build.logical_not(truth),
                           _ZERO, mask).expr  # fmt: skip
        relation = "not_equal" if name == "__any_sync" else "equal"
        return NumberValue(
            build.cast(build.compare(relation, votes, build.const(0, "uint32")), "int32")
        )

    def _match(self, value: Expr, mask: Expr | None, nodes: list[Any], node: Any) -> NumberValue:
        """Return the threads with the same value; of ``__match_all_sync``, all of them or none."""
        value = build.cast(value, promoted(value.dtype))
        same = self._emit("match", value, _ZERO, mask).expr
        there = self._emit("ballot", build.const(True, "bool"), _ZERO, mask).expr
        if mask is not None:
            there = build.call("bitwise_and", "uint32", there, mask)
        same = build.call("bitwise_and", "uint32", same, there)
        if len(nodes) == 2:
            return NumberValue(same)
        every = self.low.named("every", build.compare("equal", same, there))
        target = self.low.expressions.value(nodes[2])
        place = self.low.expressions.pointee(target, line_of(node))
        self.low.expressions.store(place, NumberValue(build.cast(every, "int32")), node)
        return NumberValue(build.where(every, there, build.const(0, "uint32")))

    def _mask(self, node: Any) -> Expr | None:
        """Return the threads that take part; None for those that come here."""
        if getattr(getattr(node, "name", None), "name", None) == "__activemask":
            return None
        return build.cast(self.low.expressions.number(node), "uint32")

    def _width(self, node: Any, name: str, line: int) -> int:
        width = self.low.expressions.number(node)
        if not isinstance(width, Const) or width.value not in (1, 2, 4, 8, 16, 32):
            raise KernelError(f"{name}: the width is no constant power of 2 up to 32", line)
        return int(width.value)

    def _emit(
        self, kind: str, value: Expr, lane: Expr, mask: Expr | None, width: int = 32
    ) -> NumberValue:
        value = value if build.is_simple(value) else self.low.named("sent", value)
        lane = lane if build.is_simple(lane) else self.low.named("lane", lane)
        op = WarpOp(self.low.emitter.fresh("lane_v"), kind, value, lane, mask, width)
        self.low.emit(op)
        return NumberValue(Var(op.dtype, op.name))
