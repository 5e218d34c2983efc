"""Every schedule of GPUs is chosen somewhere, has launch sizes, other blocks, text and words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest
from pairs import squares
from recorded import recorded
from row_functions import layer_norm, softmax
from stencils import heat

import adarray
from adarray.compiler.ir.loopir import Fold, For, statements
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GPU
from adarray.compiler.ir.verify_loops import VerifyError
from adarray.compiler.planning import planner as planning
from adarray.compiler.print_cuda import printer as cuda
from adarray.compiler.schedule.gpu import blocks
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.facts import KernelFacts
from adarray.compiler.schedule.gpu.launch import ZEROS, launch_of
from adarray.compiler.schedule.gpu.outline import outlined
from adarray.compiler.schedule.gpu.schedules import (
    Blocks,
    ColumnFolds,
    ColumnStrips,
    DeviceScan,
    FlatLoops,
    RegisterRows,
    RowsByBlock,
    RowsByWarp,
    Schedule,
    SharedRows,
    SheetRows,
    SingleBlock,
    Tiles,
    described,
)
from adarray.compiler.stencil import strips

plan = partial(planning.plan, target=GPU)


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


# For each schedule a function that gets it, and what its text and its description contain.
CASES: dict[type, tuple[Callable[..., Any], tuple[Any, ...], str, str]] = {
    FlatLoops: (np.sin, (ones(100_000),), "(int)blockIdx.x * 256 + threadIdx.x", "share each loop"),
    SingleBlock: (np.cumsum, (ones(300),), "adarray_before<512>", "whole kernel"),
    DeviceScan: (np.cumsum, (ones(40_000),), "_scan", "running fold"),
    RowsByWarp: (softmax, (ones(20_000, 30),), "adarray_together<16>", "16 threads share"),
    RowsByBlock: (softmax, (ones(4000, 1000),), "adarray_of_warps", "threads share a row"),
    SharedRows: (softmax, (ones(3000, 4096),), "adarray_fetch", "fetch it ahead"),
    RegisterRows: (
        adarray.value_and_grad(layer_norm, (0, 1, 2)),
        (ones(60, 1024), ones(1024), ones(1024)),
        "adarray_held_total",
        "4 packs each",
    ),
    SheetRows: (lambda x: np.sum(x, axis=0), (ones(3000, 40),), "adarray_sheet_total", "sheet"),
    ColumnStrips: (heat, (ones(64, 132),), "adarray_load_lane", "a strip of 128 columns"),
    ColumnFolds: (
        lambda x, y: np.sum(np.exp(-((x[:, None] - y[None, :]) ** 2)), axis=0),
        (ones(700), ones(900)),
        "adarray_columns_total",
        "folds pairs over rows",
    ),
    Tiles: (squares, (ones(600, 9), ones(500, 9)), "adarray_stage", "pairs of rows"),
}


def schedules(kind: type) -> list[Schedule]:
    """Return the schedules of a variant's example."""
    f, args, *_ = CASES[kind]
    steps = [s for s in plan(recorded(f, *args).program).steps if isinstance(s, KernelStep)]
    named = ((s.kernel, dict(zip(s.kernel.ints, s.ints, strict=True))) for s in steps)
    return [schedule_of(kernel, ints, GPU) for kernel, ints in named]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strips, "LARGE", 1)


def first(kind: type) -> Schedule:
    """Return the first schedule of a variant in its example."""
    return next(s for s in schedules(kind) if isinstance(s, kind))


def test_every_variant_has_an_example() -> None:
    assert set(CASES) == set(get_args(Schedule)) == set(Blocks.__subclasses__())


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
class TestVariant:
    """What every variant has."""

    def test_it_is_chosen_printed_and_described(self, kind: type) -> None:
        schedule = first(kind)
        text = cuda.source(schedule)
        _, _, inside, words = CASES[kind]
        assert inside in text.text
        assert f"__launch_bounds__({schedule.block}" in text.text
        assert words in described(schedule)
        assert len({described(first(k)).split(":")[0] for k in CASES}) == len(CASES)

    def test_it_has_launch_sizes_that_fit(self, kind: type) -> None:
        schedule = first(kind)
        launch = launch_of(schedule, GPU)
        assert launch.blocks >= 1
        assert launch.chunks >= 1
        assert 0 < launch.shared <= GPU.shared_memory
        assert launch.workspace >= ZEROS
        assert schedule.block % 32 == 0
        assert schedule.block % schedule.group == 0

    def test_other_blocks_have_sizes_and_text_too(self, kind: type) -> None:
        schedule = first(kind)
        for other in (blocks.resized(schedule, 64), *blocks.candidates(schedule)):
            launch = launch_of(other, GPU)
            assert launch.blocks >= 1
            assert f"__launch_bounds__({other.block}" in cuda.source(other).text

    def test_it_carries_what_it_needs_and_its_text_follows_from_that_alone(
        self, kind: type
    ) -> None:
        schedule = first(kind)
        ints = dict(schedule.facts.ints)
        again = schedule_of(schedule.facts.kernel, ints, GPU)
        assert again == schedule
        assert hash(again) == hash(schedule)
        assert cuda.source(again) == cuda.source(schedule)
        for f in fields(schedule):
            if f.name == "block":
                changed = replace(schedule, block=schedule.block * 2)
                assert changed != schedule


class TestFacts:
    """What is known of a kernel is found once."""

    def test_analyses_run_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from adarray.compiler.schedule.gpu import facts

        counts: dict[str, int] = {}
        for name in ("resident_rows", "fetched_rows", "replacing", "homes", "with_lets"):
            usual = getattr(facts, name)

            def counted(*args: Any, name: str = name, usual: Any = usual) -> Any:
                counts[name] = counts.get(name, 0) + 1
                return usual(*args)

            monkeypatch.setattr(facts, name, counted)
        schedule = first(SharedRows)
        counts_then = dict(counts)
        launch_of(schedule, GPU)
        cuda.source(schedule)
        assert counts == counts_then
        assert counts["resident_rows"] == counts["fetched_rows"] == counts["replacing"] == 1

    def test_facts_are_of_a_kernel_and_its_integers(self) -> None:
        schedule = first(RowsByBlock)
        kernel, ints = schedule.facts.kernel, schedule.facts.ints
        facts = KernelFacts(kernel, ints)
        assert facts.rows == 4000
        assert facts.longest_inner == 1000
        assert facts.fits_int32
        assert not KernelFacts(kernel, {n: v << 20 for n, v in ints.items()}).fits_int32


class TestOutline:
    """What printers are told."""

    def test_every_vector_loop_and_fold_is_decided(self) -> None:
        for kind in (FlatLoops, SingleBlock, RowsByWarp, RowsByBlock, SharedRows, RegisterRows):
            outline, after = outlined(first(kind))
            loops = [s for s in statements(outline.body) if isinstance(s, For)]
            vectors = [s for s in loops if s.kind == "vector"]
            assert [id(s) for s in vectors] == [id(s) for s in outline.loops]
            assert after is None

    def test_an_outline_names_what_is_register_resident(self) -> None:
        schedule = first(RegisterRows)
        outline, _ = outlined(schedule)
        assert [p.where for p in outline.totals if p.total.size is not None] == ["row", "row"]
        assert not any(
            isinstance(s, Fold) and s.target in outline.memory.shared
            for s in statements(outline.body)
        )
        assert outline.resident == schedule.resident


@pytest.mark.parametrize(
    ("kind", "step"), [(RegisterRows, "register_rows"), (SharedRows, "row_values")]
)
def test_what_a_schedule_makes_of_a_kernel_is_verified(
    kind: type, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADARRAY_CHECK", "1")
    schedule = first(kind)
    assert cuda.source(schedule).text
    kernel = outlined(schedule)[0].kernel
    broken = replace(kernel, body=(*kernel.body, *kernel.body))  # names are taken twice
    if isinstance(schedule, RegisterRows):
        schedule = replace(schedule, rows=schedule.rows._replace(kernel=broken))
    else:
        actual = schedule.facts.replacing
        assert actual is not None
        schedule.facts.__dict__["replacing"] = actual._replace(kernel=broken)
    with pytest.raises(VerifyError, match=f"loop IR after {step}: "):
        cuda.source(schedule)
