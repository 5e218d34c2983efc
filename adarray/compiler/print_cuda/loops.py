"""Vector loops of kernels for GPUs: their iterations are shared by the threads of a group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

from adarray.compiler.ir.affine import at
from adarray.compiler.ir.identity import IdentityMap
from adarray.compiler.ir.loopir import Expr, Fold, For, Let, Load, Store, Var
from adarray.compiler.print_c.values import OperandText, TextScope, fixed
from adarray.compiler.print_cuda import folds
from adarray.compiler.print_cuda.folds import Accumulators
from adarray.compiler.print_cuda.packs import LoopText, alone, packs
from adarray.compiler.print_cuda.statements import CudaPrinter
from adarray.compiler.scalars.dtypes import STORED
from adarray.compiler.schedule.gpu.group_loops import (
    FetchedPacks,
    FirstThread,
    GroupLoop,
    OneByOne,
    OneEach,
    OwnWarp,
    PackAccess,
    Packs,
    ResidentPacks,
)

# Prints the loop over packs in shared memory; returns how many iterations it makes.
Fetched = Callable[[LoopText, FetchedPacks], str]
Resident = Callable[[LoopText], None]


class SharedLoops:
    """Prints vector loops that groups share.

    Parameters
    ----------
    p : CudaPrinter
    sheet : mapping of str to (str, str), optional
        C names of the packs and elements of array totals that threads of a sheet have in registers.
    fetched, resident : callable, optional
        What prints loops over packs in shared memory, and in registers.

    Attributes
    ----------
    is_chosen : bool
        Whether threads that have no part in a sheet's rows were sent past all of them.
    """

    def __init__(
        self, p: CudaPrinter, sheet: Mapping[str, tuple[str, str]] | None = None,
        fetched: Fetched | None = None, resident: Resident | None = None,
    ) -> None:  # fmt: skip
        self.p = p
        self.sheet = {} if sheet is None else sheet
        self.fetched = fetched
        self.resident = resident
        self.is_chosen = False

    def loop(self, s: For) -> None:
        """Print a loop."""
        p, plan = self.p, self.p.outline.loops[s]
        start, stop = p.index(s.start), p.index(s.stop)
        lo, hi = p.fresh("m"), p.fresh("e")
        p.line(f"const {p.counter} {lo} = {start}, {hi} = {stop};")
        if isinstance(plan.sharing, FirstThread):
            self._first_thread(s, lo, hi)
            return
        accumulators = folds.begin(p, plan.accumulators)
        body, parameters = iteration(p, s, plan, accumulators)
        again = None
        if plan.repeats is not None:
            places = IdentityMap(accumulators)
            again = [
                (STORED[f.value.dtype], places.get(f) or p.changing[f.target]) for f in plan.repeats
            ]
            again = list(dict.fromkeys(again))
        one = p.fresh("f")
        p.braced(f"const auto {one} = [&]({', '.join(parameters)})", body, "};")
        guarded = TextScope()
        p.scopes.append(guarded)
        bases = self._bases(s, plan.moved, lo)
        resident = [self.sheet[x.target] for x in plan.resident]
        who = self._shared(LoopText(s, plan, one, bases, lo, hi, resident, again))
        p.scopes.pop()
        if self.is_chosen:
            for text in guarded.lines:
                p.line(text)
        else:
            p.braced(f"if ({who})", guarded)
        folds.gather(p, accumulators)

    def _shared(self, t: LoopText) -> str:
        """Print who makes which iterations; return the condition of having a part in them."""
        p, sharing = self.p, t.plan.sharing
        match sharing:
            case ResidentPacks():
                assert self.resident is not None
                self.resident(t)
            case OneEach():
                for text in alone(p, t, "lane"):
                    p.line(text)
            case OwnWarp():
                for text in alone(p, t, "0"):
                    p.line(text)
                return f"lane == span - 1 - {sharing.offset} % span"
            case FetchedPacks():
                assert self.fetched is not None
                count = self.fetched(t, sharing)
                if count:
                    self._singles(t, "0", count)
            case Packs():
                self._singles(t, *packs(p, t, sharing))
            case OneByOne():
                self._singles(t, "0", "0", sharing.unroll)
            case FirstThread():
                raise AssertionError("one thread makes all iterations")
            case _:
                assert_never(sharing)
        return f"lane < {t.stop} - {t.first}"

    def _singles(self, t: LoopText, head: str, count: str, unroll: int = 0) -> None:
        """Print the loop over the iterations before and after the packs."""
        p, (lo, hi) = self.p, (t.first, t.stop)
        k, v, scope = p.fresh("k"), p.fresh("v"), TextScope()
        if t.resident:  # an iteration for each thread
            scope.lines.append(f"const {p.counter} {v} = lane + {count};")
            scope.lines += alone(p, t, v)
            if self.is_chosen:
                for text in scope.lines:
                    p.line(text)
            else:
                p.braced(f"if (lane < {hi} - {lo} - {count})", scope)
            return
        at_ = k if count == "0" else f"({k} < {head} ? {k} : {k} + {count})"
        scope.lines.append(f"const {p.counter} {v} = {at_};")
        scope.lines += alone(p, t, v)
        if unroll:
            p.line(f"#pragma unroll {unroll}")
        p.braced(f"for ({p.counter} {k} = lane; {k} < {hi} - {lo} - {count}; {k} += span)", scope)

    def _first_thread(self, s: For, lo: str, hi: str) -> None:
        """Print a loop that one thread runs."""
        p, v, scope = self.p, self.p.fresh("v"), TextScope()
        p.scopes.append(scope)
        p.bind(s.var, fixed(v))
        p.inside = True
        p.block(s.body)
        p.inside = False
        p.scopes.pop()
        p.braced(f"if (lane == 0) for (int64_t {v} = {lo}; {v} < {hi}; {v}++)", scope)

    def _bases(self, s: For, moved: tuple[PackAccess, ...], lo: str) -> list[str]:
        """Print pointers to the elements of the first iteration."""
        p, bases = self.p, []
        lets = {x.name: x.value for x in s.body if isinstance(x, Let)}
        p.bind("first_", fixed(lo))
        for kind, dtype, x in moved:
            assert x.index is not None
            index = p.index(at(x.index, s.var, Var("int64", "first_"), lets))
            base = p.fresh("q")
            const = "const " if kind == "load" else ""
            array = p.memory[x.target if isinstance(x, Fold) else x.buffer]
            p.line(f"{const}{STORED[dtype]} *const {base} = {array} + {index};")
            bases.append(base)
        return bases


def iteration(
    p: CudaPrinter, s: For, plan: GroupLoop, accumulators: Accumulators
) -> tuple[TextScope, list[str]]:
    """Print one iteration as a function of what it loads and stores."""
    v = p.fresh("v")
    parameters = ["auto &care"] * p.outline.is_careful + [f"const int64_t {v}"]
    loads: dict[Expr, OperandText] = {}
    stores: IdentityMap[Store | Fold, str] = IdentityMap()
    places = IdentityMap(accumulators)
    for kind, dtype, x in plan.moved:
        name = p.fresh("x")
        c = STORED[dtype]
        if kind == "load":
            parameters.append(f"const {c} {name}")
            assert isinstance(x, Load)
            loads[x] = fixed(f"({name} != 0)" if dtype == "bool" else name)
        else:
            assert isinstance(x, Store | Fold)
            parameters.append(f"{c} &{name}")
            stores[x] = name
            if isinstance(x, Fold):
                places[x] = name
    for y in plan.resident:
        places[y] = p.fresh("x")
        parameters.append(f"{STORED[y.value.dtype]} &{places[y]}")
    scope = TextScope()
    p.scopes.append(scope)
    p.bind(s.var, fixed(v))
    p.iteration = (s.var, *(y.name for y in s.body if isinstance(y, Let)))
    p.inside, p.load = True, lambda e: loads.get(e) or p.element(e)
    for z in s.body:
        if isinstance(z, Store) and z in stores:
            p.line(f"{stores[z]} = {p.value(z.value)};")
        elif isinstance(z, Fold) and z in places:
            c = places[z]
            p.line(f"{c} = {p.combined(z.combine, z.value.dtype, c, p.value(z.value))};")
        else:
            p.statement(z)
    p.inside, p.load, p.iteration = False, None, ()
    p.scopes.pop()
    scope.lines.append(f"(void){v};")
    return scope, parameters
