"""Random kernels in CUDA C whose warps exchange values in branches and loops of their own.

For tests of `adarray.kernels`.
"""

from __future__ import annotations

import random

HEAD = """
__global__ void random_warps(const double *x, double *y, int n) {
    __shared__ double s[96];
    int t = threadIdx.x, w = t / 32, g0 = blockIdx.x, k = 2;
    int g = blockIdx.x * blockDim.x + t;
    if (w >= n) return;
    double a = x[g], b = cos(x[g]), c = 1 - 0.5 * x[g];
    s[t] = a;
"""
TAIL = "    y[g] = a + b * c;\n}\n"
_SHUFFLES = ("__shfl_xor_sync", "__shfl_down_sync", "__shfl_up_sync", "__shfl_sync")
_TESTS = ("w == 0", "w != 1", "t < 32", "g0 > 0", "__any_sync(~0u, a > 1.5)")


class Maker:
    """Makes statements out of random choices; all lanes of a warp agree where they go."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.loops = 0
        self.lines: list[str] = []

    def value(self) -> str:
        """Return an expression."""
        return self.r.choice(("a", "b", "c", "a * b", "sin(c)", "0.5 * a + c", "tanh(b) * c"))

    def shuffle(self) -> str:
        """Return an exchange."""
        name, width = self.r.choice(_SHUFFLES), self.r.choice((32, 8, 16))
        lane = self.r.choice(("1", "4", "w + 1", "(t * 7 + 3) % 32", "k", "3", "(t * 5) % 32"))
        if "xor" in name and width < 32:
            lane = self.r.choice(("1", "3", "5"))  # others have no partner in their part
        return f"{name}(~0u, {self.value()}, {lane}, {width})"

    def loop(self) -> str:
        """Return the head of a loop, which sets `k`."""
        self.loops += 1
        i = f"i{self.loops}"
        head = self.r.choice((
            f"for (int {i} = 0; {i} < w + 1; {i}++) {{", f"for (int {i} = 0; {i} < 3; {i}++) {{",
            f"for (int {i} = 16; {i} > 4; {i} >>= 1) {{", f"int {i} = 0; while ({i}++ < 2 + w) {{",
        ))  # fmt: skip
        return f"{head} int k = {i};"

    def block(self, depth: int) -> None:
        """Add statements."""
        for _ in range(self.r.randint(1, 3)):
            choice, v = self.r.random(), self.r.choice("abc")
            if choice < 0.35:
                self.lines.append(f"{v} = 0.5 * {v} + 0.3 * {self.shuffle()};")
            elif choice < 0.5:
                self.lines.append(f"{v} = 0.4 * {self.value()} + 0.2;")
            elif choice < 0.65 and depth < 3:
                self.lines.append(f"if ({self.r.choice(_TESTS)}) {{")
                self.block(depth + 1)
                if self.r.random() < 0.5:
                    self.lines.append("} else {")
                    self.block(depth + 1)
                self.lines.append("}")
            elif choice < 0.85 and depth < 3:
                self.lines.append(self.loop())
                self.block(depth + 1)
                self.lines.append("}")
            elif choice < 0.92:
                self.lines.append(f"s[t] = {v}; __syncwarp(); {v} = s[t ^ 2] * 0.5; __syncwarp();")
            else:
                self.lines.append(f"if (t % 3 == 0) {v} = {self.value()} * 0.5;")


def source(seed: int) -> str:
    """Return a kernel; it is launched on blocks of 96 threads."""
    maker = Maker(seed)
    maker.block(0)
    return HEAD + "\n".join(maker.lines) + "\n" + TAIL
