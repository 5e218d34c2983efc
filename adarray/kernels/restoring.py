"""Which memory a kernel of one thread restores in the reverse sweep, and which values it saves.

Either a value goes to the tape when it is read, or what an element held goes there before it is
overwritten. Per memory, that is chosen which puts less on the tape, counted by the depth of loops.
What no reverse step reads is not recorded. (Hascoet, Naumann and Pascual, *"To be recorded"
analysis in reverse-mode automatic differentiation*, 2005.)
"""

from __future__ import annotations

from dataclasses import replace

from adarray.compiler.ir.threads import variables
from adarray.kernels.activity import activity
from adarray.kernels.needs import Needs, RestorePlan
from adarray.kernels.ownership import Ownership
from adarray.kernels.reload import Apart
from adarray.kernels.reverse import Reverse
from adarray.kernels.ssa import Branch, Def, Place, Read, SsaLoop, SsaProgram, Write

_TRIPS = 32  # iterations that a loop is taken to have
_ROUNDS = 8
_LARGE = 1000  # nodes of programs for which one way is tried
_SHORT = 8  # iterations that are no vector
_NEAR = 4  # elements between those of two iterations that make a vector


class _Planner:
    """Tries out plans for one set of parameters that derivatives are wanted by."""

    def __init__(
        self,
        program: SsaProgram,
        inputs: frozenset[str],
        private: frozenset[tuple[str, int]],
        owners: Ownership,
        apart: Apart,
    ) -> None:
        self.program = program
        self.inputs = inputs
        self.private = private
        self.owners = owners
        self.apart = apart
        self.active = activity(program, set(inputs))
        # Of the kernel as it is, to ask about its statements.
        self.reverse = Reverse(
            program, self.active, Needs(program, set(private)), owners, inputs, apart=apart
        )
        self.depths = {n.number: len(n.loops) + 1 for n in program.nodes if isinstance(n, SsaLoop)}

    def needs(self, plan: RestorePlan, whole: bool = False) -> Needs:
        """Return what the reverse sweep needs with a plan, with all writes of it if `whole`."""
        needs = Needs(self.program, set(self.private), plan)
        reverse = Reverse(
            self.program, self.active, needs, self.owners, self.inputs, apart=self.apart
        )
        reverse.block(self.program.body, [])
        if whole:
            needs.restore()
        return needs

    def cost(self, needs: Needs) -> int:
        """Return about how many values go to the tape."""
        cost = 0
        for k, names in needs.taped.items():
            cost += len(names) * int(_TRIPS ** self.depths[k])
        for k in needs.plan.writes:
            cost += int(_TRIPS ** len(self.program.nodes[k].loops))
        return cost

    def candidates(self, needs: Needs) -> frozenset[str]:
        """Return memories that are read onto the tape, and could be restored."""
        taped = {n for names in needs.taped.values() for n in names}
        reads = [n for n in self.program.nodes if isinstance(n, Read) and n.name in taped]
        inside = {n.name for n in self.program.nodes if isinstance(n, Place) and n.loops}
        return frozenset(r.buffer for r in reads if r.buffer not in inside)

    def settled(self, buffers: frozenset[str], revisits: bool) -> Needs | None:
        """Return what is needed where memories are restored; None where no plan holds."""
        writes = frozenset(w.order for b in buffers for w in self.program.writes(b))
        plan = RestorePlan(buffers, writes, frozenset(), revisits)
        best: Needs | None = None
        for k in range(_ROUNDS):
            needs = self.needs(plan, k > 0)
            forced = plan.taped | needs.forced
            recorded = frozenset(o for o in writes if self._recorded(self.program.nodes[o], needs))
            if k and forced == plan.taped and recorded <= plan.writes:
                best = needs
                if recorded == plan.writes:
                    break
            # Until a plan holds, what has been dropped comes back if it is read after all.
            again = recorded if k == 0 or best is not None else recorded | plan.writes
            plan = RestorePlan(buffers, again, forced, revisits)
        return best

    def _recorded(self, w: object, needs: Needs) -> bool:
        """Whether what a write overwrites is read again in the reverse sweep."""
        assert isinstance(w, Write)
        if not needs.forward.has(w):
            return False
        return any(
            (r.order in needs.revisited if isinstance(r, Write) else r.name in needs.reloaded)
            and self.apart.follows(w, r)
            for r in self.program.accesses(w.buffer)
        )

    def steady(self) -> tuple[frozenset[int], frozenset[int]]:
        """Return the accesses of `RestorePlan.sums` and of `RestorePlan.steady`."""
        sums, steady = set(), set()
        for n in self.program.nodes:
            if not isinstance(n, (Read, Write)) or n.buffer not in self.active.memory:
                continue
            if not self._alone(n):
                continue
            if isinstance(n, Read):
                sums.add(n.order)
            elif self.reverse.added(n) is not None:
                steady.add(n.order)
        return frozenset(sums), frozenset(steady)

    def vector(self, plan: RestorePlan) -> frozenset[int]:
        """Return the loops of `RestorePlan.vector`."""
        loops = (n for n in self.program.nodes if isinstance(n, SsaLoop))
        return frozenset(n.number for n in loops if self._independent(n, plan))

    def _independent(self, loop: SsaLoop, plan: RestorePlan) -> bool:
        inside = [n for n in self.program.nodes if loop in n.loops]
        trips = self.apart.trips(loop)
        if loop.var is None or (trips is not None and trips < _SHORT):
            return False
        if not all(isinstance(n, (Def, Read, Write, Branch)) for n in inside):
            return False
        accesses = [n for n in inside if isinstance(n, (Read, Write))]
        if any(isinstance(n, Write) and n.combine is not None for n in accesses):
            return False
        # Vectors are gathered and scattered element by element.
        strides = map(self.apart.stride, accesses)
        if any(s is None or abs(s) > _NEAR for s in strides):
            return False
        for k, a in enumerate(accesses):
            for b in accesses[k:]:
                if self._both_change(a, b, plan) and self.apart.collide(a, b):
                    return False
        return True

    def _both_change(self, a: Read | Write, b: Read | Write, plan: RestorePlan) -> bool:
        """Whether the adjoints of two accesses touch one memory, and at least one changes it."""
        if a.buffer != b.buffer:
            return False
        if a.order in plan.writes or b.order in plan.writes:
            return True
        steady = plan.sums | plan.steady
        return a.buffer in self.active.memory and not {a.order, b.order} & steady

    def _alone(self, n: Read | Write) -> bool:
        """Whether all iterations of a loop come to one element, which nothing else there sets.

        A write may be one of a sum, whose own read of the element does not count.
        """
        loop = n.home
        if loop is None or loop.var is None or n.branches:
            return False
        homes = {self.program.home(v) for v in variables(n.index) & set(self.program.values)}
        if any(h is not None and h not in loop.loops for h in homes):
            return False
        others = [a for a in self.program.accesses(n.buffer) if loop in a.loops and a is not n]
        twins = [a for a in others if isinstance(a, Read) and a.home is loop and a.index == n.index]
        if isinstance(n, Read):
            # Sums may be made in any order; only what sets derivatives must not come between.
            others = [a for a in others if isinstance(a, Write)]
        elif len(twins) > 1:
            return False
        return not any(a not in twins and self.apart.meet(a, n, len(loop.loops)) for a in others)


def plan(
    program: SsaProgram,
    inputs: frozenset[str],
    private: frozenset[tuple[str, int]],
    owners: Ownership,
    apart: Apart,
) -> RestorePlan:
    """Return what of a kernel of one thread is best restored; parameters are those of `adjoint`.

    The kernel has no barriers and exchanges.

    Parameters
    ----------
    apart : Apart
        Which accesses may touch the same element.
    """
    planner = _Planner(program, inputs, private, owners, apart)
    best = planner.needs(RestorePlan())
    cost = planner.cost(best)
    buffers = planner.candidates(best)
    tries = [(buffers, True), (buffers, False), *((buffers - {b}, True) for b in sorted(buffers))]
    if len(program.nodes) > _LARGE:
        tries = tries[:1]
    for tried, revisits in tries:
        if not tried or not cost:
            continue
        needs = planner.settled(tried, revisits)
        if needs is not None and planner.cost(needs) < cost:
            best, cost = needs, planner.cost(needs)
    sums, steady = planner.steady()
    chosen = replace(best.plan, sums=sums, steady=steady, final=best.final(apart.follows))
    return replace(chosen, vector=planner.vector(chosen))
