"""What is left of the integers of a kernel when they are divided by a number.

References
----------
- P. Granger, "Static analysis of arithmetical congruences", Int. J. Comput. Math. 30 (1989),
  165-190.
"""

from __future__ import annotations

from collections.abc import Mapping

from adarray.compiler.ir.loopir import Apply, Const, Expr, For, If, Kernel, Let, Stmt, Var


class Remainders:
    """Remainders of what the statements of a kernel name; None for what has several.

    Parameters
    ----------
    kernel : Kernel
    ints : mapping of str to int
        Its integer parameters.
    divisor : int

    Examples
    --------
    >>> from adarray.compiler.ir.loopir import integer
    >>> i, n, t = (Var("int64", name) for name in "int")
    >>> product = Let("t", Apply("int64", "multiply", (i, n)))
    >>> kernel = Kernel((), ("n",), (), (For("i", integer(0), n, (product,)),))
    >>> found = Remainders(kernel, {"n": 12}, 4)
    >>> found.of(t), found.of(Apply("int64", "add", (t, integer(6)))), found.of(i)
    (0, 2, None)
    """

    def __init__(self, kernel: Kernel, ints: Mapping[str, int], divisor: int) -> None:
        self.divisor = divisor
        self.known: dict[str, int | None] = {n: v % divisor for n, v in ints.items()}
        self._block(kernel.body)

    def _block(self, body: tuple[Stmt, ...]) -> None:
        for s in body:
            if isinstance(s, Let) and s.value.dtype == "int64":
                self.known[s.name] = self.of(s.value)
            elif isinstance(s, For):
                self._block(s.body)
            elif isinstance(s, If):
                self._block((*s.body, *s.orelse))

    def of(self, e: Expr) -> int | None:
        """Return the remainder of an int64 expression."""
        if isinstance(e, Const):
            return int(e.value) % self.divisor
        if isinstance(e, Var):
            return self.known.get(e.name)
        if not isinstance(e, Apply) or e.dtype != "int64":
            return None
        if e.name == "multiply":
            rests = [self.of(a) for a in e.args]
            if 0 in rests:
                return 0
            a, b = rests
            return None if a is None or b is None else a * b % self.divisor
        if e.name in ("where", "minimum", "maximum"):
            ends = {self.of(a) for a in e.args[e.name == "where" :]}
            return ends.pop() if len(ends) == 1 else None
        if e.name in ("add", "subtract"):
            a, b = (self.of(x) for x in e.args)
            if a is None or b is None:
                return None
            return (a + b if e.name == "add" else a - b) % self.divisor
        return None
