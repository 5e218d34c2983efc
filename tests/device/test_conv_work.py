"""The jobs and tables of the convolution kernels, read in Python as the kernels read them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from adarray_backends.cuda import conv_tiles, conv_work
from adarray_backends.cuda.conv_tiles import SHAPES
from adarray_backends.cuda.conv_work import FILLING, JOB

from adarray.ops import windows
from adarray.ops.windows import Geometry

RNG = np.random.default_rng(8)
# Shapes of images and weights, stride, padding, dilation, groups.
CASES = [
    ((2, 4, 5, 6), (3, 4, 3, 2), (2, 1), ((1, 0), (2, 3)), (1, 2), 1),
    ((2, 6, 4, 5), (6, 3, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 2),
    ((2, 3, 5, 5), (5, 3, 1, 1), (2, 2), ((0, 0), (0, 0)), (1, 1), 1),
    ((1, 3, 2, 2), (3, 3, 3, 3), (3, 3), ((5, 5), (2, 2)), (1, 1), 1),
    ((2, 9, 4, 4), (7, 9, 2, 2), (3, 2), ((0, 0), (0, 1)), (1, 1), 1),
]


def quotient(p: int, d: Any) -> int:
    """Divide as the kernels do."""
    result = p if d["by"] == 1 else (p * int(d["times"]) >> 32) >> int(d["shift"])
    assert result == p // int(d["by"])
    return result


def packed(x: Any, p: conv_work.Packing, per: int) -> Any:
    """Return planes of channels as places of words, each a pair or a single number."""
    planes = x.reshape(p.planes, p.channels, p.plane)
    wide = np.zeros((p.planes, p.words * per, p.plane))
    wide[:, : p.channels] = planes
    return wide.swapaxes(1, 2).reshape(-1, per)


class Reader:
    """Reads one job, and sums what its kernel sums."""

    def __init__(self, launch: conv_work.ConvLaunch, kind: int) -> None:
        self.kind, self.shape = kind, SHAPES[kind]
        raw = launch.job.tobytes()
        self.job = np.frombuffer(raw[: JOB.itemsize], JOB)[0]
        self.rest = np.frombuffer(raw[JOB.itemsize :], np.int32)
        if launch.filling is not None:
            raw = launch.filling.tobytes()
            self.filling = np.frombuffer(raw[: FILLING.itemsize], FILLING)[0]
            self.at = np.frombuffer(raw[FILLING.itemsize :], np.int32).reshape(-1, 2)

    def steps(self, entry: int) -> tuple[int, int, int]:
        """Return offset and steps of an entry of the table."""
        offset, both = (int(v) for v in self.rest[2 * entry : 2 * entry + 2])
        right = both & 0xFFFF
        return offset, both >> 16, right - (1 << 16) if right & 0x8000 else right

    def place(self, q: int) -> tuple[int, int, int, int, int, int]:
        """Return image, row, column, remainder of a place, and where its window begins."""
        p = self.job["p"]
        n = quotient(q, p["image"])
        rest = q - n * int(p["image"]["by"])
        row = quotient(rest, p["row"])
        column = rest - row * int(p["row"]["by"])
        down, right = row * int(p["down"]) + int(p["top"]), column * int(p["right"])
        return n, row, column, rest, down, right + int(p["left"])

    def read(self, x: Any, base: int, entry: int, ih: int, iw: int) -> Any:
        """Return what an entry means of images, zeros outside; of four words at once."""
        im, count = self.job["im"], 4 if self.shape.tensor else 1
        offset, down, right = self.steps(entry)
        if not (0 <= ih + down < im["height"] and 0 <= iw + right < im["width"]):
            return np.zeros((count, self.shape.per))
        pitch = int(self.job["words"]) if self.shape.tensor else 1
        first = base + (ih * int(im["width"]) + iw) * pitch + offset
        return x[first : first + count]

    def gather(self, x: Any, w: Any, out: Any) -> None:
        job, f = self.job, self.filling
        im, to, s = job["im"], job["to"], job["s"]
        entries = int(s["steps"]) * self.shape.deep // (4 if self.shape.tensor else 1)
        deep = int(s["steps"]) * self.shape.deep
        for group in range(int(s["groups"])):
            weights = np.zeros((int(to["channels"]), deep, self.shape.per))
            for m in range(int(to["channels"])):
                base = group * int(f["each"]) + m * int(f["apart"])
                for half in range(self.shape.per):
                    at = self.at[:, half]
                    weights[m, :, half] = np.where(at >= 0, w[base + np.maximum(at, 0)], 0)
            for q in range(int(job["p"]["count"])):
                n, row, column, _, ih, iw = self.place(q)
                base = n * int(im["image"]) + group * int(im["group"])
                seen = [self.read(x, base, e, ih, iw) for e in range(entries)]
                spot = to["first"] + n * to["image"] + row * to["row"] + column * to["column"]
                spot += group * to["channels"] * to["channel"]
                column_of = spot + to["channel"] * np.arange(to["channels"])
                total = np.concatenate(seen) if seen else np.zeros((0, self.shape.per))
                assert np.all(np.isnan(out[column_of]))
                out[column_of] = np.einsum("mkp,kp->m", weights, total)

    def weigh(self, x: Any, g: Any, out: Any) -> None:
        job = self.job
        im, to, groups = job["im"], job["to"], int(job["s"]["groups"])
        elements, channels = int(job["elements"]), int(to["channels"])
        four = 4 if self.shape.tensor else 1
        out[:] = 0
        for group in range(groups):
            for q in range(int(job["p"]["count"])):
                n, _, _, rest, ih, iw = self.place(q)
                base = n * int(im["image"]) + group * int(im["group"])
                seen = [self.read(x, base, e, ih, iw) for e in range(elements // four)]
                m = np.arange(channels)
                if self.shape.tensor:
                    low = self.rest[2 * (elements // 4) :]
                    assert low.size == elements * self.shape.per
                    first = n * to["image"] + group * to["first"] + rest * to["row"]
                    ct = g[first : first + to["row"]].ravel()[m]
                    spots = group * channels * to["channel"] + m[:, None] * to["channel"] + low
                    keep = np.broadcast_to(low >= 0, spots.shape)
                else:
                    ct = g[n * to["image"] + (group * channels + m) * to["channel"] + rest].ravel()
                    spots = (group * channels + m[:, None]) * elements + np.arange(elements)
                    keep = np.ones(spots.shape, bool)
                part = ct[:, None] * np.concatenate(seen).ravel()
                out[spots[keep]] += part[keep]


def emulated(name: str, a: Any, b: Any, k: Geometry, kind: int) -> Any:
    """Return what the kernels compute, each result written exactly once."""
    work = conv_work.work_of(name, k, kind, 4)
    per = SHAPES[kind].per
    operands = [a.reshape(-1, 1), b.reshape(-1, 1)]
    for i, p in enumerate(work.packings):
        operands[i] = packed((a, b)[i], p, per)
    shape = conv_work.shape_of(name, k)
    out = np.full(int(np.prod(shape)), np.nan)
    for launch in work.launches:
        reader = Reader(launch, kind)
        sums = reader.job["s"]
        assert sums["stretch"] * work.parts >= sums["steps"]
        if name == "conv2d_weight":
            reader.weigh(*operands, out)
        else:
            reader.gather(operands[0], b.ravel(), out)
    return out.reshape(shape)


@pytest.mark.parametrize("kind", [1, 2, 3, 5])
@pytest.mark.parametrize("case", CASES)
def test_kernels_would_compute_convolutions(case: Any, kind: int) -> None:
    x, w, *settings = case
    k = windows.geometry_of("conv2d", x, w, *settings)
    assert conv_work.suits(k)
    x, w, g = RNG.normal(size=x), RNG.normal(size=w), RNG.normal(size=(k.number, k.filters, *k.out))
    for name, a, b, want in (
        ("conv2d", x, w, windows.forward(x, w, k)),
        ("conv2d_input", g, w, windows.to_input(g, w, k)),
        ("conv2d_weight", x, g, windows.to_weight(x, g, k)),
    ):
        got = emulated(name, a, b, k, kind)
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-12, err_msg=name)


def test_structures_have_the_sizes_of_c() -> None:
    assert JOB.itemsize == 144
    assert FILLING.itemsize == 32
    offsets = {n: JOB.fields[n][1] for n in JOB.names}  # type: ignore[index, union-attr]
    assert offsets == {"p": 0, "im": 48, "to": 72, "s": 120, "elements": 136, "words": 140}


@pytest.mark.parametrize("by", [1, 2, 3, 5, 7, 28, 196, 3136, 50176, (1 << 30) + 1])
def test_division_by_products(by: int) -> None:
    divisor = dict(zip(("by", "times", "shift"), conv_work._divisor(by), strict=True))
    assert divisor["times"] < 1 << 32
    top = (1 << 31) - 1
    for p in {0, 1, by - 1, by, by + 1, top // by * by - 1, top // by * by, top} - {-1}:
        quotient(p, divisor)


def test_what_does_not_fit_is_left_to_others() -> None:
    of = windows.geometry_of
    assert not conv_work.suits(of("c", (1, 1, 1 << 15, 8), (1, 1, 1, 1), 1, 0, 1, 1))
    assert not conv_work.suits(of("c", (1 << 11, 4, 1 << 10, 1 << 10), (1, 4, 1, 1), 1, 0, 1, 1))
    assert not conv_work.suits(of("c", (0, 4, 9, 9), (1, 4, 1, 1), 1, 0, 1, 1))
    few = of("c", (2, 4, 9, 9), (4, 1, 3, 3), 1, 0, 1, 4)
    exact = conv_tiles.KINDS["float32"]
    assert all(
        conv_tiles.kind_for(n, "bf16", few) == conv_tiles.FEW[exact] for n in conv_work.NAMES
    )
    few = of("c", (2, 2, 9, 9), (8, 2, 3, 3), 1, 0, 1, 1)
    assert conv_tiles.kind_for("conv2d_weight", "bf16", few) == exact
    assert conv_tiles.kind_for("conv2d_input", "bf16", few) == conv_tiles.FEW[exact]
