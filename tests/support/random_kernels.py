"""Random kernels in CUDA C: branches, loops of every kind, jumps, memory that is overwritten.

For tests of `adarray.kernels`.
"""

from __future__ import annotations

import random

HEAD = """
__device__ double mix(double a, double b, int k) {
    if (k % 3 == 0) return 0.5 * a + sin(b);
    if (k % 3 == 1) { a = a * b; return tanh(a); }
    return a / (1.5 + b * b);
}
__device__ void bump(double &a, double *at) { a = 0.7 * a + *at * 0.3; *at = a * 0.9 + 0.1; }

__global__ void random_kernel(const double *x, double *y, double p, int n) {
    __shared__ double s[8];
    const int tid = threadIdx.x, g = blockIdx.x * blockDim.x + tid;
    double t[4] = {0.1, 0.2, 0.3, 0.4};
    double a = x[g], b = y[g], c = p;
    int k = tid % 3, count = 0;
    s[tid] = a;
    __syncthreads();
"""
TAIL = """
    y[g] = a + 0.5 * b * c + t[k % 4];
}
"""


class Maker:
    """Makes statements out of random choices."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.loops = 0
        self.depth = 0
        self.lines: list[str] = []

    def scalar(self) -> str:
        """Return a variable."""
        return self.r.choice("abc")

    def index(self) -> str:
        """Return an index of the local array."""
        names = [f"i{n}" for n in range(self.depth)] + ["k", "count", "tid"]
        return f"({self.r.choice(names)} + {self.r.randrange(4)}) % 4"

    def value(self, deep: int = 2) -> str:
        """Return an expression that stays small."""
        kind = self.r.randrange(9 if deep else 4)
        if kind < 2:
            return self.scalar()
        if kind == 2:
            return f"t[{self.index()}]"
        if kind == 3:
            return self.r.choice(["x[g]", "y[g]", "p", "0.7", "x[(g + 1) % n]"])
        left, right = self.value(deep - 1), self.value(deep - 1)
        return {
            4: f"0.5 * ({left} + {right})", 5: f"tanh({left} * {right})",
            6: f"mix({left}, {right}, k + {self.r.randrange(3)})",
            7: f"({left} > {right} ? {left} * 0.5 : sin({right}))",
            8: f"fmax({left}, 0.3 * {right})",
        }[kind]  # fmt: skip

    def condition(self) -> str:
        """Return a condition."""
        return self.r.choice(
            [f"{self.value(1)} > {self.r.uniform(-0.5, 0.5):.3f}", "k % 2 == 0", "tid < 3",
             f"count < {self.r.randrange(1, 4)}", "a > b && c < 0.9"]
        )  # fmt: skip

    def add(self, text: str, inside: int) -> None:
        """Add a line."""
        self.lines.append("    " * inside + text)

    def block(self, size: int, inside: int, in_loop: bool) -> None:
        """Add statements."""
        for _ in range(size):
            self.statement(inside, in_loop)

    def statement(self, inside: int, in_loop: bool) -> None:
        """Add one statement."""
        kind = self.r.randrange(13)
        if kind < 4:
            op = self.r.choice(["=", "=", "+=", "*="])
            value = self.value()
            self.add(f"{self.scalar()} {op} {'0.5 * ' if op == '*=' else ''}sin({value});", inside)
        elif kind == 4:
            self.add(f"t[{self.index()}] = {self.value()};", inside)
        elif kind == 5:
            self.add(f"y[g] = 0.5 * y[g] + {self.value(1)};", inside)
        elif kind == 6:
            self.add(self.r.choice(["k++;", "count += k % 2;", "k = (k + 3) % 5;"]), inside)
        elif kind == 7:
            self.add(f"bump({self.scalar()}, &t[{self.index()}]);", inside)
        elif kind in (8, 9) and inside < 4:
            self.add(f"if ({self.condition()}) {{", inside)
            self.block(self.r.randrange(1, 3), inside + 1, in_loop)
            if self.r.random() < 0.5:
                self.add("} else {", inside)
                self.block(self.r.randrange(1, 3), inside + 1, in_loop)
            self.add("}", inside)
        elif kind in (10, 11) and self.depth < 3 and inside < 4:
            self.loop(inside)
        elif kind == 12 and in_loop:
            self.add(f"if ({self.condition()}) {self.r.choice(['break', 'continue'])};", inside)

    def loop(self, inside: int) -> None:
        """Add a loop."""
        i = f"i{self.depth}"
        trips = self.r.randrange(2, 4)
        self.depth += 1
        form = self.r.randrange(4)
        if form < 2:
            stop = self.r.choice([str(trips), f"k % 3 + {trips - 1}", "n / 4"])
            self.add(f"for (int {i} = 0; {i} < {stop}; {i}++) {{", inside)
        elif form == 2:
            self.add(f"for (int {i} = {trips}; {i} > 0; {i} -= 1) {{", inside)
        else:
            self.add(f"int {i} = 0;", inside)
            self.add(f"while ({i} < {trips} && a < 5.0) {{", inside)
            self.add(f"    {i}++;", inside)
        self.block(self.r.randrange(1, 4), inside + 1, True)
        self.depth -= 1
        self.add("}", inside)

    def phase(self) -> None:
        """Add an exchange through shared memory."""
        self.add("__syncthreads();", 1)
        self.add(f"s[tid] = {self.value(1)};", 1)
        self.add("__syncthreads();", 1)
        self.add(f"{self.scalar()} = 0.6 * s[(tid + {self.r.randrange(1, 4)}) % 4] + 0.2 * b;", 1)

    def rounds(self) -> None:
        """Add a loop in which threads exchange values."""
        self.add(f"for (int round = 0; round < {self.r.randrange(2, 4)}; round++) {{", 1)
        self.add(f"    s[tid] = {self.value(1)};", 1)
        self.add("    __syncthreads();", 1)
        self.add(f"    {self.scalar()} += 0.3 * s[(tid + 1) % 4] * {self.scalar()};", 1)
        self.block(self.r.randrange(0, 2), 2, False)
        self.add("    __syncthreads();", 1)
        self.add("}", 1)


def source(seed: int) -> str:
    """Return the source of a kernel for blocks of 4 threads."""
    m = Maker(seed)
    for _ in range(3):
        m.block(m.r.randrange(1, 5), 1, False)
        if m.r.random() < 0.6:
            m.r.choice([m.phase, m.rounds])()
    if m.r.random() < 0.3:
        m.add("if (tid == 3) return;", 1)
        m.block(2, 1, False)
        m.phase()
    return HEAD + "\n".join(m.lines) + TAIL
