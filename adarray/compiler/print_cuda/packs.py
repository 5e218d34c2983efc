"""Packs of neighbouring passes of vector loops, as threads of a GPU load and store them."""

from __future__ import annotations

from adarray.compiler.ir.affine import ZERO, at, terms
from adarray.compiler.ir.loopir import Expr, Fold, For, Load, Stmt, Store
from adarray.compiler.print_c.values import Scope
from adarray.compiler.print_cuda.folds import GroupFolds
from adarray.compiler.scalars.functions import SIZES, STORED
from adarray.compiler.schedule.gpu import sheet_width
from adarray.compiler.schedule.gpu_loops import LONG, PACK
from adarray.compiler.schedule.vectors import longest

# What a vector loop loads, stores or folds into at neighbouring places: which, dtype, statement.
Moved = tuple[str, str, Load | Store | Fold]
SHORT = 24  # statements of a loop that is printed once more, for operands off alignment


class PackLoops(GroupFolds):
    """Prints loops over packs; `GroupLoops` prints what is around."""

    cares: bool
    askew: bool
    again: list[tuple[str, str]] | None
    held: dict[str, tuple[str, str]]
    counter: str
    slots: dict[int, str]
    near: set[str]
    once: set[str]
    lets: dict[str, Expr]

    def braced(self, head: str, scope: Scope, end: str = "}") -> None:
        """Print the lines of a scope below `head`."""
        self.line(f"{head} {{")
        for text in scope.lines:
            self.line(text if text.startswith("#") else f"    {text}")
        self.line(end)

    def _holds(self, s: Stmt) -> bool:
        """Whether a statement folds into a total that threads hold in registers."""
        return isinstance(s, Fold) and s.index is not None and s.target in self.held

    def _by_itself(
        self, packed: list[Moved], bases: list[str], one: str, lo: str, v: str,
        held: list[tuple[str, str]],
    ) -> list[str]:  # fmt: skip
        """Return the lines of a pass by itself."""
        lines: list[str] = []
        args, after = ["care"] * self.cares + [f"{lo} + {v}"], []
        for (kind, dtype, _), base in zip(packed, bases, strict=True):
            if kind == "load":
                args.append(f"{base}[{v}]")
                continue
            y = self.fresh("y")
            lines.append(f"{STORED[dtype]} {y}{f' = {base}[{v}]' if kind == 'fold' else ''};")
            args.append(y)
            after.append(f"{base}[{v}] = {y};")
        args += [element for _, element in held]
        return [*lines, f"{one}({', '.join(args)});", *after]

    def _anchors(self, packed: list[Moved], s: For, lets: dict[str, Expr]) -> list[tuple[int, int]]:
        """Return for each load or store which one it lies beside, and by how many elements.

        Of loads that differ by less than a pack, one is made in packs; neighbours take most
        of their elements from it. What has no such neighbour is its own.
        """
        width = self.width(s, packed)
        known: dict[tuple[str, frozenset[tuple[Expr, int]]], list[tuple[int, int]]] = {}
        places = []
        for k, (_, _, x) in enumerate(packed):
            assert x.index is not None
            const, multiples = terms(at(x.index, s.var, ZERO, lets), self.lets)
            places.append((const, frozenset(multiples.items())))
            if isinstance(x, Load):
                known.setdefault((x.buffer, places[k][1]), []).append((const, k))
        # Whether some may be aligned where others are not.
        self.askew = len({(c % width, rest) for c, rest in places}) > 1 and len(s.body) <= SHORT
        wanted = {
            p[1]: p[0] for (kind, _, _), p in zip(packed, places, strict=True) if kind == "store"
        }
        found = [(k, 0) for k in range(len(packed))]
        for (_, rest), family in known.items():
            # The one that is aligned where the result is, or else the one in the middle.
            middle = sorted(family)[len(family) // 2][0]
            goal = wanted.get(rest, min(wanted.values(), default=middle))
            if all((const - goal) % width for const, _ in family):
                goal = middle
            straight = [(const, k) for const, k in family if (const - goal) % width == 0]
            for const, k in family:
                near = [(c, a) for c, a in straight if 0 < abs(const - c) < width]
                if near:
                    found[k] = (near[0][1], const - near[0][0])
        return found

    def _packs(
        self, packed: list[Moved], bases: list[str], anchors: list[tuple[int, int]], one: str,
        bounds: tuple[str, str], width: int, held: list[tuple[str, str]],
    ) -> tuple[str, str]:  # fmt: skip
        """Print the loop over packs of neighbouring passes.

        They begin where the first result, or else operand, is aligned, unless they must stay
        where they are. If then another operand is not, its elements are loaded one by one; so
        are those of loops that must stay, which also store them so. Otherwise passes are made
        one by one, by neighbouring threads. Return how many passes come before, and how many
        it makes.
        """
        lo, hi = bounds
        still = bool(held)
        moves = list(zip(packed, bases, strict=True))
        first = next(
            (b for m, b in moves if m[0] == "store"), bases[anchors[0][0]] if bases else ""
        )
        head, count, straight = self.fresh("h"), self.fresh("m"), self.fresh("w")
        n = f"({hi} > {lo} ? {hi} - {lo} : 0)"
        start = "0" if still else f"adarray_head<{width}>({first}, {n})"
        self.line(f"const {self.counter} {head} = {start};")
        own = [(m[0], b) for k, (m, b) in enumerate(moves) if anchors[k] == (k, 0)]
        tests = [
            " & ".join(f"adarray_aligned<{width}>({b} + {head})" for how, b in own if how in which)
            for which in (("load", "store", "fold"), ("store",))
        ]
        self.line(f"const bool {straight} = {tests[0] or 'true'};")
        both = self.askew and bool(tests[1]) and not still
        all_ = f"({n} - {head}) / {width} * {width}"
        test = tests[1] if both else straight
        self.line(f"const {self.counter} {count} = {all_ if still else f'{test} ? {all_} : 0'};")
        cast, v = f"({self.counter})", self.fresh("v")
        begin, step = f"{head} + {cast}lane * {width}", f"{cast}span * {width}"
        loop = f"for ({self.counter} {v} = {begin}; {v} < {head} + {count}; {v} += {step})"
        if still:  # a pack for each thread
            self.line(f"const {self.counter} {v} = {begin};")
            loop = f"if ({v} < {head} + {count})"
        either = still or both
        fast = f"if ({straight}) {loop}" if either else loop
        self.braced(fast, self._pack(moves, anchors, one, lo, v, width, "", held))
        if either:
            slow = self._pack(moves, anchors, one, lo, v, width, "_each", held)
            self.braced(f"if (!{straight}) {loop}", slow)
        return head, count

    def _pack(
        self, moves: list[tuple[Moved, str]], anchors: list[tuple[int, int]], one: str,
        lo: str, v: str, width: int, each: str, held: list[tuple[str, str]],
    ) -> Scope:  # fmt: skip
        """Return the lines of one pack."""
        after: list[str] = []
        scope, args = Scope(), ["care"] * self.cares + [f"{lo} + {v} + u"]
        names = [self.fresh("y") for _ in moves]
        for k, ((kind, dtype, x), base) in enumerate(moves):
            other, d = anchors[k]
            if other != k:
                inside = f"u + {d} >= 0 && u + {d} < {width}"
                args.append(f"{inside} ? {names[other]}.v[u + {d}] : {base}[{v} + u]")
                continue
            scope.lines.append(f"adarray_pack<{STORED[dtype]}, {width}> {names[k]};")
            apart = each if held or self.slots else ""  # results, where they may not be aligned
            if id(x) in self.slots:
                if kind != "store":
                    scope.lines.append(f"{names[k]} = *{self.slots[id(x)]};")
                if kind != "load":
                    after.append(f"*{self.slots[id(x)]} = {names[k]};")
                args.append(f"{names[k]}.v[u]")
                continue
            if isinstance(x, Fold):
                scope.lines.append(f"adarray_load{each}({names[k]}, {base} + {v});")
                way = each or ("_near" if x.target in self.form.shared else "")
                after.append(f"adarray_store{way}({names[k]}, {base} + {v});")
                args.append(f"{names[k]}.v[u]")
                continue
            how = each if kind == "load" else apart or self._way(x.buffer)
            line = f"adarray_{kind}{how}({names[k]}, {base} + {v});"
            (scope.lines if kind == "load" else after).append(line)
            args.append(f"{names[k]}.v[u]")
        args += [f"{pack}.v[u]" for pack, _ in held]
        again = None if held else self.again
        if again is not None:
            args[0] = "quick"
            scope.lines.append("adarray_quick quick = {false};")
            scope.lines += [f"const {kind} {name}_ = {name};" for kind, name in again]
        scope.lines.append("#pragma unroll")
        scope.lines.append(f"for (int u = 0; u < {width}; u++) {one}({', '.join(args)});")
        if again is None:
            scope.lines += after
            return scope
        packed, bases = [m for m, _ in moves], [b for _, b in moves]
        if self.form.turns:  # what is in registers has no address
            args[0] = "care"
            scope.lines += [
                "if (quick.rare) {",
                *(f"    {name} = {name}_;" for name in (n for _, n in again)),
                *(
                    f"    {names[k]} = *{self.slots[id(x)]};"
                    for k, (kind, _, x) in enumerate(packed)
                    if kind == "fold"
                ),
                "#pragma unroll",
                f"    for (int u = 0; u < {width}; u++) {one}({', '.join(args)});",
                "}",
                *after,
            ]
            return scope
        scope.lines += [
            "if (quick.rare) {",
            *(f"    {name} = {name}_;" for _, name in again),
            "#pragma unroll 1",
            f"    for ({self.counter} k = {v}; k < {v} + {width}; k++) {{",
            *(f"        {x}" for x in self._by_itself(packed, bases, one, lo, "k", held)),
            "    }",
            "} else {",
            *(f"    {x}" for x in after),
            "}",
        ]
        return scope

    def _way(self, buffer: str) -> str:
        """Return which kind of store writes an array."""
        if buffer in self.near:
            return "_near"
        past = any(b.name == buffer and b.stream for b in self.kernel.buffers)
        return "" if buffer not in self.once else "_past" if past else "_only"

    def width(self, s: For, packed: list[Moved]) -> int:
        """Return how many passes share the widest loads and stores; 1 in long bodies."""
        if any(self._holds(x) for x in s.body):
            return min(sheet_width(self.kernel, s), self.form.wide)
        passes = longest(s, {})
        if len(s.body) > LONG or (passes is not None and passes < 64):
            return 1
        return PACK // max((SIZES[dtype] for _, dtype, _ in packed), default=PACK)
