"""Vector loops of kernels for GPUs: their passes are shared by the threads of a group."""

from __future__ import annotations

from adarray.compiler.ir.affine import at
from adarray.compiler.ir.loopir import (
    Apply,
    Expr,
    Fold,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Stmt,
    Store,
    Var,
    statements,
    walk,
)
from adarray.compiler.print_c.values import Operand, Scope, fixed
from adarray.compiler.print_cuda.fetch import Fetching
from adarray.compiler.print_cuda.folds import Partials
from adarray.compiler.print_cuda.held import Holding
from adarray.compiler.print_cuda.packs import Moved, PackLoops
from adarray.compiler.scalars.functions import STORED
from adarray.compiler.schedule.gpu import Form
from adarray.compiler.schedule.gpu_loops import WARP, homes, scattered, walks
from adarray.compiler.schedule.vectors import expressions


class GroupLoops(PackLoops):
    """Prints vector loops; `adarray.compiler.print_cuda.printer.CudaPrinter` prints the rest."""

    def __init__(self, kernel: Kernel, form: Form) -> None:
        super().__init__(kernel, form)
        self.inside = False  # of a vector loop
        # The variable of the vector loop that is being printed, and the names in it.
        self.passing: tuple[str, ...] = ()
        self.borders = 0  # loops of one pass so far
        # Whether functions take a care, and what a pack sets back that is computed again.
        self.cares = False
        self.askew = False  # whether operands of the loop may be aligned where others are not
        self.again: list[tuple[str, str]] | None = None
        # Array totals of a sheet, in registers: a pack and an element, for each thread.
        self.held: dict[str, tuple[str, str]] = {}
        # Whether threads that have no part in a sheet's passes were sent past all of them.
        self.chosen = False
        self.counter = "int" if form.narrow else "int64_t"
        self.fetching: Fetching | None = None  # if the kernel fetches rows
        self.holding: Holding | None = None  # if threads hold rows
        self.slots: dict[int, str] = {}  # where packs of loads are, by ``id``
        # Buffers that passes write to places of their own.
        self.apart: set[str] = set()
        self.home = homes(kernel)
        found = list(statements(kernel.body))
        self.local = {s.name: s.dtype for s in found if isinstance(s, Local) and s.size}
        # Arrays in shared memory.
        self.near = {name for name, home in self.home.items() if home in form.shared}
        # Of integers, wherever they are named: indices that differ by a number are found so.
        self.lets = {s.name: s.value for s in found if isinstance(s, Let)}
        # Buffers that one statement writes, and none reads.
        stored = [s.buffer for s in found if isinstance(s, Store)]
        self.once = {n for n in self.outs if stored.count(n) == 1} - self.touches(kernel.body)[0]
        self.apart = self._apart(kernel)

    def _apart(self, kernel: Kernel) -> set[str]:
        """Return the buffers of `once` of which no element is written twice.

        Passes of the parallel loop are independent; so are those of a vector loop. Serial loops
        between both may write an element again, as may threads that share one statement.
        """
        loops = [s for s in kernel.body if isinstance(s, For) and s.kind == "parallel"]
        inner = [x for s in loops for x in s.body if isinstance(x, For) and x.kind == "vector"]
        return self.once & {x.buffer for s in inner for x in s.body if isinstance(x, Store)}

    # -- what both need --------------------------------------------------------------------

    def touches(self, body: tuple[Stmt, ...]) -> tuple[set[str], set[str]]:
        """Return the memory that statements read and write, of that which threads share."""
        read, written = set(), set()
        for s in statements(body):
            for e in expressions(s):
                read |= {x.buffer for x in walk(e) if isinstance(x, Load)}
            if isinstance(s, Store):
                written.add(s.buffer)
            elif isinstance(s, Fold) and s.index is not None and s.target not in self.outs:
                written.add(s.target)
                read.add(s.target)
        shared = self.outs - self.apart
        shared |= {s.name for s in self.statements if isinstance(s, Local) and s.size}
        if not self.form.turns:
            shared |= {t.name for t in self.kernel.totals if t.size is not None}
        return (
            {self.home.get(n, n) for n in read & shared},
            {self.home.get(n, n) for n in written & shared},
        )

    # -- vector loops ----------------------------------------------------------------------

    def shared_loop(self, s: For) -> None:
        """Print a loop whose passes the threads of the group share."""
        start, stop = self.index(s.start), self.index(s.stop)
        lo, hi = self.fresh("m"), self.fresh("e")
        self.line(f"const {self.counter} {lo} = {start}, {hi} = {stop};")
        if scattered(s, self.outs):
            self._first_thread(s, lo, hi)
            return
        lets = {x.name: x.value for x in s.body if isinstance(x, Let)}
        partial = self._partials(s, lets)
        packed = self.packed(s, lets)
        body, parameters = self._pass(s, packed, partial)
        fetching = self.fetching if self.fetching and self.fetching.reads(s) else None
        # In packs alone:
        kept = (fetching is not None and self.form.kept) or self.holding is not None
        self.again = None
        if not kept or self.holding is not None:
            self.again = self._registers(s, packed, partial)
        one = self.fresh("f")
        self.braced(f"const auto {one} = [&]({', '.join(parameters)})", body, "};")
        guarded = Scope()
        self.scopes.append(guarded)
        bases = self._bases(s, packed, lets, lo)
        head, count, who = "0", "0", f"lane < {hi} - {lo}"
        held = [self.held[x.target] for x in s.body if isinstance(x, Fold) and self._holds(x)]
        single = (s.var in self.form.single or self._is_short()) and not held
        if self.holding is not None:
            self.holding.loop(packed, bases, one, (lo, hi))
        elif single and self._is_short():
            for text in self._by_itself(packed, bases, one, lo, "lane", held):
                self.line(text)
        elif single:
            # Another warp for each such loop, and none of those with most to do.
            warps = 1 << 20 if self.form.kind == "sheet" else self.form.group // WARP
            who = f"lane == span - 1 - {WARP * (self.borders % warps)} % span"
            self.borders += 1
            for text in self._by_itself(packed, bases, one, lo, "0", held):
                self.line(text)
        elif fetching is not None:
            head, count = fetching.loop(s, packed, bases, one, lo)
        elif self.width(s, packed) > 1:
            anchors = self._anchors(packed, s, lets)
            width = self.width(s, packed)
            head, count = self._packs(packed, bases, anchors, one, (lo, hi), width, held)
        if not single and not kept:
            self._singles(packed, bases, one, lo, hi, head, count, held)
        self.scopes.pop()
        if self.chosen:
            for text in guarded.lines:
                self.line(text)
        else:
            self.braced(f"if ({who})", guarded)
        self._gather(partial)

    def _is_short(self) -> bool:
        """Whether each thread makes one pass of the loop at most."""
        return self.form.short and self.form.kind == "rows"

    def _singles(
        self, packed: list[Moved], bases: list[str], one: str, lo: str, hi: str, head: str,
        count: str, held: list[tuple[str, str]],
    ) -> None:  # fmt: skip
        """Print the loop over the passes before and after the packs."""
        k, v, scope = self.fresh("k"), self.fresh("v"), Scope()
        if held:  # a pass for each thread
            scope.lines.append(f"const {self.counter} {v} = lane + {count};")
            scope.lines += self._by_itself(packed, bases, one, lo, v, held)
            if self.chosen:
                for text in scope.lines:
                    self.line(text)
            else:
                self.braced(f"if (lane < {hi} - {lo} - {count})", scope)
            return
        at_ = k if count == "0" else f"({k} < {head} ? {k} : {k} + {count})"
        scope.lines.append(f"const {self.counter} {v} = {at_};")
        scope.lines += self._by_itself(packed, bases, one, lo, v, held)
        self.braced(
            f"for ({self.counter} {k} = lane; {k} < {hi} - {lo} - {count}; {k} += span)", scope
        )

    def _registers(
        self, s: For, packed: list[Moved], partial: Partials
    ) -> list[tuple[str, str]] | None:
        """Return what a pass changes but for what it stores in packs: types and names.

        None if it changes memory, or calls no function that takes a care: then no pack is
        computed twice.
        """
        if not self.careful(s.body):
            return None
        stores = {id(x) for _, _, x in packed}
        places = {id(f): c for f, c in partial}
        found = []
        for x in s.body:
            if isinstance(x, Fold) and (id(x) in places or x.index is None):
                name = places.get(id(x)) or self.changing[x.target]
                found.append((STORED[x.value.dtype], name))
            elif not isinstance(x, Let) and id(x) not in stores:
                return None
        return list(dict.fromkeys(found))

    def careful(self, body: tuple[Stmt, ...]) -> bool:
        """Whether statements call functions that take a care."""
        raise NotImplementedError

    def _first_thread(self, s: For, lo: str, hi: str) -> None:
        """Print a loop whose passes may fold into the same element: one thread does it."""
        v = self.fresh("v")
        scope = Scope()
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))
        self.inside = True
        self.block(s.body)
        self.inside = False
        self.scopes.pop()
        self.braced(f"if (lane == 0) for (int64_t {v} = {lo}; {v} < {hi}; {v}++)", scope)

    def packed(self, s: For, lets: dict[str, Expr]) -> list[Moved]:
        """Return the loads and stores of neighbouring elements of arrays, once each."""
        found: list[Moved] = []
        seen: set[Expr] = set()
        dtypes = {b.name: b.dtype for b in self.kernel.buffers} | self.local
        written = self.touches((s,))[1]
        for x in s.body:
            for e in (y for root in expressions(x) for y in walk(root)):
                if (
                    isinstance(e, Load)
                    and e.buffer in dtypes
                    and e.buffer not in written
                    and e not in seen
                    and walks(e.index, s.var, lets)
                ):
                    seen.add(e)
                    found.append(("load", dtypes[e.buffer], e))
            if isinstance(x, Store) and x.buffer in dtypes and walks(x.index, s.var, lets):
                read = self.touches((s,))[0]
                if (
                    x.buffer not in read
                    and sum(isinstance(y, Store) and y.buffer == x.buffer for y in s.body) == 1
                ):
                    found.append(("store", dtypes[x.buffer], x))
            elif isinstance(x, Fold) and self._beside(x, s, lets):
                found.append(("fold", x.value.dtype, x))
        return found

    def _beside(self, x: Fold, s: For, lets: dict[str, Expr]) -> bool:
        """Whether passes fold into neighbouring elements of an array total in memory."""
        totals = {t.name for t in self.kernel.totals if t.size is not None}
        if x.target not in totals or x.target in self.held or x.index is None:
            return False
        uses = [y.target for y in s.body if isinstance(y, Fold)]
        uses += [e.buffer for y in s.body for root in expressions(y) for e in walk(root)
                 if isinstance(e, Load)]  # fmt: skip
        return uses.count(x.target) == 1 and walks(x.index, s.var, lets)

    def _bases(self, s: For, packed: list[Moved], lets: dict[str, Expr], lo: str) -> list[str]:
        """Print pointers to the elements of the first pass."""
        found = []
        self.bind("first_", fixed(lo))
        for kind, dtype, x in packed:
            assert x.index is not None
            index = self.index(at(x.index, s.var, Var("int64", "first_"), lets))
            base = self.fresh("q")
            const = "const " if kind == "load" else ""
            array = self.memory[x.target if isinstance(x, Fold) else x.buffer]
            self.line(f"{const}{STORED[dtype]} *const {base} = {array} + {index};")
            found.append(base)
        return found

    def _pass(self, s: For, packed: list[Moved], partial: Partials) -> tuple[Scope, list[str]]:
        """Print one pass as a function of what it loads and stores."""
        v = self.fresh("v")
        parameters = ["auto &care"] * self.cares + [f"const int64_t {v}"]
        loads: dict[Expr, Operand] = {}
        stores: dict[int, str] = {}
        places = {id(f): c for f, c in partial}
        for kind, dtype, x in packed:
            name = self.fresh("x")
            c = STORED[dtype]
            if kind == "load":
                parameters.append(f"const {c} {name}")
                assert isinstance(x, Load)
                loads[x] = fixed(f"({name} != 0)" if dtype == "bool" else name)
            else:
                parameters.append(f"{c} &{name}")
                stores[id(x)] = name
                if isinstance(x, Fold):
                    places[id(x)] = name
        for y in s.body:
            if self._holds(y):
                assert isinstance(y, Fold)
                places[id(y)] = self.fresh("x")
                parameters.append(f"{STORED[y.value.dtype]} &{places[id(y)]}")
        scope = Scope()
        self.scopes.append(scope)
        self.bind(s.var, fixed(v))
        self.passing = (s.var, *(y.name for y in s.body if isinstance(y, Let)))
        self.inside, self.load = True, lambda e: loads.get(e) or self.element(e)
        for y in s.body:
            if isinstance(y, Store) and id(y) in stores:
                self.line(f"{stores[id(y)]} = {self.value(y.value)};")
            elif isinstance(y, Fold) and id(y) in places:
                c = places[id(y)]
                text = self.combined(y.combine, y.value.dtype, c, self.value(y.value))
                self.line(f"{c} = {text};")
            else:
                self.statement(y)
        self.inside, self.load, self.passing = False, None, ()
        self.scopes.pop()
        scope.lines.append(f"(void){v};")
        return scope, parameters

    def number_of_pass(self, e: Apply, args: list[Operand]) -> Operand | None:
        """Compare the number of a pass with what is the same in all of them, in 32 bits."""
        if e.name not in ("equal", "not_equal") or not self.passing or not self.form.narrow:
            return None
        own = self.passing[0]
        for k in (0, 1):
            other = e.args[1 - k]
            fixed_ = isinstance(other, Var) and other.name not in self.passing
            if e.args[k] != Var("int64", own) or not fixed_:
                continue
            key = f"in 32 bits: {args[1 - k].key}"
            found = self._known(key)
            if found is None:
                name, before = self.fresh("c"), self.scopes[-2]
                before.lines.append(f"const int {name} = adarray_narrow({args[1 - k].text});")
                found = before.known[key] = fixed(name)
            sign, name = "==" if e.name == "equal" else "!=", self.fresh("t")
            self.line(f"const _Bool {name} = (int){args[k].text} {sign} {found.text};")
            return fixed(name)
        return None
