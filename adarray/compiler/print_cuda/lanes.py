"""Vector loops of kernels whose rows lie in the registers of a warp: see `lanes`."""

from __future__ import annotations

from collections.abc import Callable

from adarray.compiler.ir.affine import ZERO, at
from adarray.compiler.ir.loopir import For, Load, Local, Store, integer, walk
from adarray.compiler.print_c.values import Operand, Scope, fixed
from adarray.compiler.print_cuda.loops import GroupLoops
from adarray.compiler.print_cuda.packs import Moved
from adarray.compiler.scalars.functions import STORED
from adarray.compiler.schedule import lanes
from adarray.compiler.schedule.vectors import expressions


class LaneLoops(GroupLoops):
    """Prints what kernels in lanes have instead of shared memory and groups."""

    def lane_integers(self) -> None:
        """Print the integers of a kernel in lanes as int32, if that holds all of them."""
        if not self.form.lanes or not self.form.narrow:
            return
        for i, name in enumerate(self.kernel.ints):
            self.line(f"const int m{i} = (int)n{i};")
            self.bind(name, fixed(f"m{i}"))

    def named(self, key: str, dtype: str, made: Callable[[], str], varies: bool = True) -> Operand:
        """Return the value known as `key`; if there is none, print a constant for it."""
        if dtype != "int64" or not self.form.lanes or not self.form.narrow:
            return super().named(key, dtype, made, varies)
        found = self._known(key)
        if found is None:
            text, name = made(), self.fresh("t")
            self.line(f"const int {name} = (int)({text});")
            found = self.scopes[-1].known[key] = fixed(name)
        return found

    def lane_array(self, s: Local) -> None:
        """Print a row: each lane holds its columns."""
        c = self.fresh("s")
        self.line(f"adarray_pack<{STORED[s.dtype]}, {self.form.lanes}> {c};")
        self.dtypes[s.name] = s.dtype
        self.memory[s.name] = c

    def lane_loop(self, s: For) -> None:
        """Print a vector loop: all lanes compute all their columns, and store those of it."""
        width = self.form.lanes
        loads = self._lane_loads(s)
        stores = [x for x in s.body if isinstance(x, Store)]
        dtypes = {b.name: b.dtype for b in self.kernel.buffers} | self.local
        moved: list[Moved] = [("load", dtypes[e.buffer], e) for e in loads]
        moved += [("store", dtypes[x.buffer], x) for x in stores]
        one = self.fresh("f")
        body, parameters = self._pass(s, moved, [])
        scope = Scope()
        self.scopes.append(scope)
        self.braced(f"const auto {one} = [&]({', '.join(parameters)})", body, "};")
        args = ["care"] * self.cares + [f"{lanes.MARGIN} + lane * {width} + u"]
        args += [f"{self._pack_of(e, s)}.v[u]" for e in loads]
        results = [self.fresh("y") for _ in stores]
        for x, y in zip(stores, results, strict=True):
            args.append(f"{y}.v[u]")
            self.line(f"adarray_pack<{STORED[dtypes[x.buffer]]}, {width}> {y};")
        self.line("#pragma unroll")
        self.line(f"for (int u = 0; u < {width}; u++) {one}({', '.join(args)});")
        for x, y in zip(stores, results, strict=True):
            self._lane_store(x, y, s)
        self.scopes.pop()
        self.braced("", scope)

    def _lane_loads(self, s: For) -> list[Load]:
        """Return what passes load of which a lane gets its columns together."""
        found: list[Load] = []
        for e in (y for x in s.body for root in expressions(x) for y in walk(root)):
            if not isinstance(e, Load) or e in found:
                continue
            if e.buffer in self.local or lanes.neighbours(e.index, s) is not None:
                found.append(e)
        return found

    def _lane_store(self, x: Store, y: str, s: For) -> None:
        """Print the store of a lane's columns: all those of a row, or some of a result's."""
        if x.buffer in self.local:
            self.line(f"{self.memory[x.buffer]} = {y};")
            return
        how = "_pack" if self.form.packs else ""
        first = self.index(at(x.index, s.var, integer(lanes.MARGIN), lanes.fixed_lets(s)))
        lo, hi = (f"{self.index(e)} - {lanes.MARGIN}" for e in (s.start, s.stop))
        place = f"{self.memory[x.buffer]} + {first}"
        column = f"lane * {self.form.lanes}"
        self.line(f"adarray_store_lane{how}({y}, {place}, {column}, {lo}, {hi});")

    def _pack_of(self, e: Load, s: For) -> str:
        """Return the pack that holds what this lane's passes load."""
        width, lets = self.form.lanes, lanes.fixed_lets(s)
        memory = self.memory[e.buffer]
        name = lanes.neighbours(e.index, s)
        if name is None:
            by = lanes.shift(e.index, s.var, lets)
            if by == 0:
                return memory
            z = self.fresh("z")
            kind = STORED[self.local[e.buffer]]
            self.line(f"const adarray_pack<{kind}, {width}> {z} = adarray_beside<{by}>({memory});")
            return z
        start, count, own = lanes.turned_names(s)[name]
        base = self.index(at(e.index, name, ZERO, lets))
        first = self.index(at(start, s.var, integer(lanes.MARGIN), lets))
        y, kind = self.fresh("y"), STORED[e.dtype]
        self.line(f"adarray_pack<{kind}, {width}> {y};")
        how = "_pack" if self.form.packs else ""
        self.line(
            f"adarray_load_lane{how}({y}, {memory} + {base}, {first} + lane * {width}, "
            f"{self.index(count)}, {self.index(own)});"
        )
        return y
