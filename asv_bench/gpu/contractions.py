"""Products of matrices and convolutions of images against torch (cuBLAS, cuDNN) on the same GPU.

Run it where CuPy and torch find a GPU::

    python -m asv_bench.gpu.contractions [--sizes 2048 4096] [--precisions float32] [--json FILE]

Rates are operations a second by the GPU's clock, with several calls between two events, in turns
with torch's; errors are relative, ``norm(result - exact) / norm(exact)``, of the first rows.
torch's operands of 16 bits lie ready; adarray's are float32 arrays, which it rounds in each
call, or float16 arrays. Products are called eagerly, convolutions compiled.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

import adarray
from adarray.ops.nn import conv2d, conv2d_input, conv2d_weight
from asv_bench.gpu.needed import needed

cupy: Any = None  # which `main` loads
torch: Any = None
SIZES = (1024, 2048, 4096, 8192, 16384)
PRECISIONS = ("float32", "tf32", "bf16", "fp16", "float64")
IMAGE_PRECISIONS = ("float32", "tf32", "bf16")
ROWS = 256  # that errors are taken of
ROUNDS = 5
ROUND_MS = 2.0
KINDS = {"bf16": "bfloat16", "fp16": "float16", "float64": "float64"}  # of torch
# Images, channels, height, width; channels of the result, window, stride, padding.
IMAGES = (
    (32, 64, 56, 56, 64, 3, 1, 1),
    (64, 128, 56, 56, 256, 3, 1, 1),
    (32, 256, 14, 14, 256, 3, 1, 1),
    (32, 512, 7, 7, 512, 3, 1, 1),
    (32, 256, 56, 56, 128, 1, 1, 0),
    (32, 3, 224, 224, 64, 7, 2, 3),
)


def times(*calls: Callable[[], Any]) -> list[float]:
    """Return the median seconds of each call, measured in turns."""
    first, last = cupy.cuda.Event(), cupy.cuda.Event()

    def once(call: Callable[[], Any], count: int) -> float:
        first.record()
        for _ in range(count):
            call()
        last.record()
        last.synchronize()
        return float(cupy.cuda.get_elapsed_time(first, last)) / count

    counts = []
    for call in calls:
        for _ in range(4):  # the first ones compile, choose algorithms, and capture graphs
            call()
        counts.append(max(2, min(50, round(ROUND_MS / max(once(call, 2), 1e-3)))))
    rounds = [[once(*pair) for pair in zip(calls, counts, strict=True)] for _ in range(ROUNDS)]
    return [statistics.median(column) / 1e3 for column in zip(*rounds, strict=True)]


def error(result: Any, exact: Any) -> float:
    """Return the relative error of the first rows."""
    return float(
        cupy.linalg.norm(result[:ROWS].astype(np.float64) - exact) / cupy.linalg.norm(exact)
    )


def drawn(*shape: int) -> Any:
    """Return normal numbers, float32."""
    return cupy.random.standard_normal(shape, dtype=np.float32)


def kind_of(precision: str) -> Any:
    """Return torch's dtype of operands."""
    return getattr(torch, KINDS.get(precision, "float32"))


def products(size: int, precision: str) -> dict[str, Any]:
    """Measure products of square matrices in one precision."""
    a, b = drawn(size, size), drawn(size, size)
    exact = a[:ROWS].astype(np.float64) @ b.astype(np.float64)
    if precision == "float64":
        a, b = a.astype(np.float64), b.astype(np.float64)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    x, y = (torch.from_dlpack(v).to(kind_of(precision)) for v in (a, b))
    out = torch.empty_like(x)
    option = "float32" if precision == "float64" else precision
    figures: dict[str, Any] = {"size": size, "precision": precision}
    with adarray.use("cuda", matmul_precision=option):
        p, q = adarray.array(a), adarray.array(b)
        calls = [lambda: torch.matmul(x, y, out=out), lambda: np.matmul(p, q)]
        if precision == "fp16":
            r, s = adarray.array(a.astype(np.float16)), adarray.array(b.astype(np.float16))
            calls.append(lambda: np.matmul(r, s))
        took = times(*calls)
        product = np.matmul(p, q)
    names = ("torch", "adarray", "adarray, float16 arrays")
    rates = {n: 2.0 * size**3 / t for n, t in zip(names, took, strict=False)}
    errors = {
        "torch": error(cupy.from_dlpack(out.double()), exact),
        "adarray": error(cupy.from_dlpack(product), exact),
    }
    return figures | {"rates": rates, "errors": errors}


def convolutions(sizes: tuple[int, ...], precision: str) -> dict[str, Any]:
    """Measure a convolution and its two gradients, compiled, seconds of torch and adarray."""
    n, c, h, w, o, k, stride, pad = sizes
    x, v = drawn(n, c, h, w), drawn(o, c, k, k)
    out = [(m + 2 * pad - k) // stride + 1 for m in (h, w)]
    g = drawn(n, o, *out)
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    tx, tv, tg = (torch.from_dlpack(z).to(kind_of(precision)) for z in (x, v, g))
    settings = (None, (stride,) * 2, (pad,) * 2, (1, 1), False, (0, 0), 1)
    backward = torch.ops.aten.convolution_backward
    value = adarray.jit(lambda a, b: conv2d(a, b, stride, pad))
    images = adarray.jit(lambda a, b: conv2d_input(a, b, (h, w), stride, pad))
    weights = adarray.jit(lambda a, b: conv2d_weight(a, b, (k, k), stride, pad))
    with adarray.use("cuda", matmul_precision=precision):
        ax, av, ag = map(adarray.array, (x, v, g))
        pairs = {
            "forward": (
                lambda: torch.nn.functional.conv2d(tx, tv, stride=stride, padding=pad),
                lambda: value(ax, av),
            ),
            "images": (
                lambda: backward(tg, tx, tv, *settings, (True, False, False)),
                lambda: images(ag, av),
            ),
            "weights": (
                lambda: backward(tg, tx, tv, *settings, (False, True, False)),
                lambda: weights(ax, ag),
            ),
        }
        seconds = {name: times(*pair) for name, pair in pairs.items()}
    flop = 2.0 * n * o * out[0] * out[1] * c * k * k
    return {"sizes": sizes, "precision": precision, "flop": flop, "seconds": seconds}


def main(argv: list[str] | None = None) -> None:
    """Measure, print, and write what was found."""
    global cupy, torch
    prog = "python -m asv_bench.gpu.contractions"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="of square matrices")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--json", metavar="FILE", help="file for all figures")
    options = parser.parse_args(argv)
    if min(options.sizes, default=1) < 1:
        parser.error("--sizes are at least 1")
    cupy, torch = needed("asv_bench.gpu.contractions", "cupy", "torch")
    report: dict[str, list[Any]] = {"products": [], "convolutions": []}
    print("products, 10^12 operations a second (relative error)")
    for size in options.sizes:
        for precision in options.precisions:
            figures = products(size, precision)
            report["products"].append(figures)
            rates, errors = figures["rates"], figures["errors"]
            shown = (
                f"{name} {rate / 1e12:.1f}" + (f" ({errors[name]:.1e})" if name in errors else "")
                for name, rate in rates.items()
            )
            print(f"{size:6} {precision:8}", " | ".join(shown), flush=True)
    print("convolutions, microseconds of torch and adarray: value, gradients")
    for sizes in IMAGES:
        for precision in (p for p in IMAGE_PRECISIONS if p in options.precisions):
            figures = convolutions(sizes, precision)
            report["convolutions"].append(figures)
            shown = (
                f"{name} {a * 1e6:.0f} {b * 1e6:.0f}" for name, (a, b) in figures["seconds"].items()
            )
            print(sizes, precision, " | ".join(shown), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()
