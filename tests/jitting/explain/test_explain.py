"""Explanations: what they say of a plan by hand, as text, HTML and data."""

import html.parser
import re
import warnings

import numpy as np
import pytest
from dot_program import COUNTS_CLUSTERS, install
from planned import Executable, M, N, events, example

import adarray
from adarray.base.recording import Call, Guard, Symbol
from adarray.base.report import (
    Code,
    ReportTable,
    Section,
    as_html,
    as_text,
    count_text,
    size_text,
    table_lines,
    time_text,
)
from adarray.compiler.ir.primitives import Map, Reduce
from adarray.jitting.explain.costs import total
from adarray.jitting.explain.explanation import Explanation
from adarray.jitting.explain.sections import ShownSegment, recorded


@pytest.fixture
def explanation():
    program, plan = example()
    first = ShownSegment(
        -1,
        None,
        events(),
        program,
        program,
        plan,
        Executable(),
        {"passes": 0.001, "compile": 0.2},
        3,
    )
    second = ShownSegment(
        0, True, events()[:1], program, program, None, eager="no C compiler works"
    )
    third = ShownSegment(0, False, events()[:2], None, None, None, eager="it was recorded once")
    return Explanation(
        "loss", "float64[1000], float64[1000, 100]", "openmp (2 threads)",
        [first, second, third], [0, 1], ["captured: scale"], (2, 0.25),
    )  # fmt: skip


def part(text, title, until=None):
    """Return the lines of the section `title` in a report."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip().startswith(title))
    depth = len(lines[start]) - len(lines[start].lstrip())
    stop = start + 1
    while stop < len(lines) and (
        not lines[stop].strip() or len(lines[stop]) - len(lines[stop].lstrip()) > depth
    ):
        stop += 1
    return [line.strip() for line in lines[start + 1 : stop] if line.strip()]


def test_summary(explanation):
    lines = part(str(explanation), "summary")
    told = dict(line.split("  ", 1) for line in lines)
    told = {key: value.strip() for key, value in told.items()}
    _, plan = example()
    c = total(plan)
    assert told["backend"] == "openmp (2 threads)"
    assert told["path"] == "0 -> 1"
    assert told["kernels"] == "2"
    assert told["read, written"] == f"{size_text(c.read)}, {size_text(c.written)}"
    assert told["arithmetic"].startswith("203.10 kflop; 1.00 k of them")
    assert told["peak memory"] == "818.47 kB"
    assert told["from recording to executable"] == "201.000 ms"
    assert told["runs recorded"] == "2, in 250.000 ms"
    assert told["note"] == "captured: scale"
    assert explanation.cost == c
    assert explanation.peak_bytes == 1664 + 8 * (N + N * M + N + 1 + M)
    assert explanation.compile_seconds == pytest.approx(0.201)


def test_tree(explanation):
    assert part(str(explanation), "paths") == [
        "* segment 0: 3 calls; compiled, 3 runs",
        "guard bool (model.py:14)",
        "*     if True: segment 1: 1 call; no C compiler works",
        "if False: segment 2: 2 calls; it was recorded once",
    ]


def test_recorded_calls_have_names_and_places(explanation):
    assert part(str(explanation), "recorded") == [
        "s1 float64[1000] = sin(s0) (model.py:12)",
        "s2 float64[] = sum(s1, axis=0) (model.py:13)",
        "s3 bool[] = greater(s2, 0.0) (model.py:14)",
        "guard bool s3 is True (model.py:14)",
    ]


def test_recorded_containers_and_calls_that_are_guards():
    x, y, z = Symbol((3,), "f8"), Symbol((3,), "f8"), Symbol((2,), "i8")
    joined = Call(None, np.concatenate, ([x, y],), {}, (Symbol((6,), "f8"),))
    call = Call(None, np.flatnonzero, (x,), {}, (z,))
    split = Call(None, divmod, (y, np.arange(3)), {"o": {"k": x}}, (Symbol((3,), "f8"),) * 2, True)
    guard = Guard("call", None, (((2,), "int64"),), ("m.py", 4), call)
    assert recorded([joined, split, guard]).splitlines() == [
        "s2 float64[6] = concatenate([s0, s1])",
        "s3 float64[3], s3 float64[3] = divmod(s1, <int64[3]>, o={k: s0})",
        "guard call flatnonzero(s0) is shapes of its results (m.py:4)",
    ]


def test_programs_and_steps_name_the_same_values(explanation):
    text = str(explanation)
    program = part(text, "program after the passes (9 values)")
    assert program[4] == "v4 float64[1000] = map sin v3"
    steps = part(text, "steps (4)")
    assert steps[0].split() == [
        "step", "kind", "computes", "values", "reads", "writes", "arithmetic", "calls",
    ]  # fmt: skip
    assert steps[2].split("  ")[0] == "0"
    assert "multiply, sin, reduce add  v3 v4 v5" in steps[2]
    assert steps[2].endswith("8.00 kB   8.01 kB    3.00 kflop  1.00 k".replace("   ", "  ", 1))
    assert [line.split()[1] for line in steps[2:]] == ["kernel", "product", "kernel", "call"]


def test_why_neighbours_are_apart(explanation):
    lines = part(str(explanation), "not fused")
    cells = [cell.strip() for cell in re.split("  +", lines[2])]
    assert cells == [
        "v4 sin (model.py:12)", "v6 matmul (model.py:14)",
        "a product reads its operands from memory",
    ]  # fmt: skip
    assert lines[3].startswith("v6 matmul (model.py:14)  v7 multiply (model.py:15)")
    assert len(lines) == 4


def test_values_computed_in_two_steps_are_told():
    program, plan = example()
    sin = plan.steps[0].values[1]
    again = plan.steps[2]._replace(values=(sin, *plan.steps[2].values))
    plan = plan._replace(steps=(*plan.steps[:2], again, plan.steps[3]))
    shown = Explanation(
        "f", "", "serial", [ShownSegment(-1, None, (), program, program, plan)], [0]
    )
    assert part(str(shown), "steps (4)")[-1] == (
        "computed in more than one step, rather than stored: v4"
    )


def test_buffers(explanation):
    lines = part(str(explanation), "buffers (7)")
    assert lines[0] == (
        "arena 1.66 kB, for temporaries of 1.60 kB in all; "
        "peak with arguments and results 818.47 kB"
    )
    rows = {line.split("  ")[0]: line.split() for line in lines[3:]}
    assert rows["temp 1"][2:] == ["float64", "100", "800", "B", "832", "2", "to", "3"]
    assert rows["input 1"][2:] == ["float64", "100000", "800.00", "kB", "1", "to", "1"]


def test_results_say_where_they_come_from(explanation):
    lines = part(str(explanation), "results")
    assert [line.split() for line in lines[2:]] == [
        ["0", "float64[100]", "v8", "step", "3", "sort", "(model.py:16)"],
        ["1", "float64[]", "v5", "step", "0", "sum", "(model.py:13)"],
        ["2", "float64[1000]", "v4", "step", "0", "sin", "(model.py:12)"],
    ]


def test_kernels_with_their_source(explanation):
    first, second = explanation.kernels
    assert (first.segment, first.step, first.values) == (0, 0, ("v3", "v4", "v5"))
    assert first.source == "/* step 0 */ int64_t adk_0(void);"
    assert second.title == "multiply"
    assert part(str(explanation), "kernel of step 0: multiply, sin, reduce add") == [first.source]
    assert part(str(explanation), "kernel of step 2: multiply") == [second.source]


def test_equal_kernels_are_shown_once():
    class Same(Executable):
        def source_of(self, step):
            return "void same(void);" if step in (0, 2) else ""

    program, plan = example()
    shown = Explanation(
        "f", "", "serial", [ShownSegment(-1, None, (), program, program, plan, Same())], [0]
    )
    assert str(shown).count("void same(void);") == 1
    assert "kernel of steps 0, 2: multiply, sin, reduce add" in str(shown)


def test_kernels_of_a_gpu_say_how_they_run():
    class OnGpu(Executable):
        def schedule_of(self, step):
            return f"flat: all blocks of {64 << step} threads share each loop"

        def expected(self, step, moved, flops, calls):
            return f"predicted {moved + flops + calls:.0f} us"

    program, plan = example()
    shown = Explanation(
        "f", "", "cuda", [ShownSegment(-1, None, (), program, program, plan, OnGpu())], [0]
    )
    assert "flat: all blocks of 256 threads" in shown.kernels[1].schedule
    lines = part(str(shown), "kernel of step 2: multiply")
    assert lines[0] == shown.kernels[1].schedule
    cost = shown.kernels[1].cost
    assert lines[1] == f"predicted {cost.moved + cost.flops + cost.calls:.0f} us"
    assert lines[-1] == shown.kernels[1].source


def test_compiling(explanation):
    rows = [line.split("  ") for line in part(str(explanation), "compiling")[2:]]
    told = {row[0]: row[-1].strip() for row in rows}
    assert told == {
        "passes": "1.000 ms",
        "compile": "200.000 ms",
        "kernels compiled": "1",
        "kernels from the disk cache": "1",
        "kernels that this process had": "0",
    }


def test_what_stays_eager_says_why(explanation):
    segment = str(explanation).split("segment 1\n")[1]
    assert part(segment, "stays eager") == ["no C compiler works"]
    # Without a plan there are no steps; programs are shown.
    assert "program after the passes" in segment
    assert "steps (" not in segment
    with pytest.raises(
        ValueError, match=r"segment 2 has no program \(it was recorded once\); call"
    ):
        explanation.dot(2)


def test_a_function_that_was_never_recorded():
    shown = Explanation("f", "float64[3]", "numpy", [], [], ["it was not called yet"])
    assert "none: nothing is compiled" in str(shown)
    assert shown.cost.moved == shown.peak_bytes == 0
    assert repr(shown) == "<explanation of f: 0 of 0 segments, 0 kernels>"


class Checker(html.parser.HTMLParser):
    """Checks that elements close in order, and collects the text."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("meta", "rect", "path"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_html(explanation, tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, COUNTS_CLUSTERS)
    explanation.save(tmp_path / "e.html")
    checker = Checker()
    checker.feed((tmp_path / "e.html").read_text())
    assert checker.open == []
    assert checker.seen.count("svg") == 1
    words = "".join(checker.words)
    assert "v4 float64[1000] = map sin v3" in words
    assert "/* step 0 */ int64_t adk_0(void);" in words
    assert "a product reads its operands from memory" in words
    cells = {w.strip() for w in checker.words}
    assert {"818.47 kB", "temp 1", "step 3"} <= cells


def test_html_without_graphviz(explanation, monkeypatch):
    monkeypatch.setenv("PATH", "")
    checker = Checker()
    checker.feed(explanation._repr_html_())
    assert checker.open == []
    assert "svg" not in checker.seen
    words = "".join(checker.words)
    assert "the program 'dot' of Graphviz, which draws pictures, is not on PATH" in words
    assert explanation.dot(0) in words


def test_pictures_of_segments(explanation, tmp_path, monkeypatch):
    assert explanation.dot(0).count("subgraph cluster_") == 4
    assert explanation.dot().count("subgraph cluster_") == 0  # the last segment has no plan
    install(tmp_path, monkeypatch, COUNTS_CLUSTERS)
    assert explanation.svg(0).strip() == "<svg><text>4</text></svg>"


def test_reports():
    table = ReportTable(("a", "n"), (("xx", "1"), ("y", "100")), frozenset({1}))
    assert table_lines(table) == ["a     n", "-------", "xx    1", "y   100"]
    assert table_lines(ReportTable(("", ""), (("k", "v"),))) == ["k  v"]
    assert table_lines(ReportTable(("a",), ())) == ["a", "-"]
    inner = Section("in <side>", (Code("x < y\n  z"),), folded=True)
    outer = Section("top", ("words & more", table), (inner,))
    assert as_text(outer).splitlines() == [
        "top", "  words & more", "  a     n", "  -------", "  xx    1", "  y   100", "",
        "  in <side>", "    x < y", "      z",
    ]  # fmt: skip
    result = as_html(outer)
    assert "<summary>in &lt;side&gt;</summary>" in result
    assert "<pre>x &lt; y\n  z</pre>" in result
    assert "<p>words &amp; more</p>" in result


def test_long_listings_are_cut():
    table = ReportTable(("a",), tuple((str(i),) for i in range(10)))
    section = Section("top", (table, Code("x\ny\nz")))
    assert as_text(section, 3).splitlines() == [
        "top", "  a", "  -", "  0", "  1", "  2", "  ... and 7 more", "  x", "  y", "  z",
    ]  # fmt: skip
    assert as_text(section, 2).splitlines()[-3:] == ["  x", "  y", "  ... and 1 more"]
    assert as_text(section).count("more") == 0
    result = as_html(section, 2)
    assert "<p>... and 8 more</p>" in result
    assert "<pre>x\ny</pre><p>... and 1 more</p>" in result


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (8e6, "8.00 MB"),
        (2.5e9, "2.50 GB"),
        (1e13, "10.00 TB"),
    ],
)
def test_sizes(value, expected):
    assert size_text(value) == expected


def test_times_and_counts():
    assert [time_text(t) for t in (0, 2e-9, 1.5e-6, 0.25, 3)] == [
        "0 ns", "2 ns", "1.500 us", "250.000 ms", "3.000 s",
    ]  # fmt: skip
    assert [count_text(0), count_text(12, "calls"), count_text(2500, "flop")] == [
        "0", "12 calls", "2.50 kflop",
    ]  # fmt: skip


# -- of functions under jit ----------------------------------------------------------------


def branching(x, y):
    s = np.sin(x) * y
    if np.sum(s) > 0:
        return np.sum(np.exp(s))
    return np.sum(np.sort(s) * y)


@pytest.fixture
def data():
    return np.linspace(0.1, 1, 500), np.ones(500)


def test_a_function_is_compiled_to_be_explained(data):
    jf = adarray.jit(adarray.value_and_grad(branching))
    x, y = data
    copy = x.copy(), y.copy()
    with adarray.use("serial"):
        shown = jf.explain(x, y)
        assert shown.backend == "serial (1 thread)"
        assert len(shown.path) == 2
        np.testing.assert_array_equal(x, copy[0])
        expected = jf(x, y)
        again = jf.explain(x, y)
        np.testing.assert_array_equal(jf(x, y)[1], expected[1])
    first, last = (shown.segments[n] for n in shown.path)
    line = branching.__code__.co_firstlineno + 2
    assert (first.guard.kind, first.guard.outcome) == ("bool", True)
    assert first.guard.where[1] == line
    assert f"guard bool (test_explain.py:{line})" in str(shown)
    assert last.guard is None
    assert last.eager == ""
    assert {"passes", "plan", "compile"} <= set(last.seconds)
    assert shown.recordings[0] == 1
    assert again.segments[again.path[1]].runs > last.runs


def test_every_value_of_a_plan_is_accounted_for(data):
    jf = adarray.jit(adarray.value_and_grad(branching))
    with adarray.use("serial"):
        shown = jf.explain(*data)
    s = shown.segments[shown.path[-1]]
    sources = [k.source for k in shown.kernels if k.segment == shown.path[-1]]
    assert sources
    assert all("adk_" in source and "int64_t" in source for source in sources)
    names = {v for k in shown.kernels for v in k.values}
    assert any("exp" in k.title for k in shown.kernels)
    computed = [v for v in s.after.values if isinstance(v.primitive, (Map, Reduce))]
    assert len(names) >= len(computed)
    # The gradient is written once, and x and y are read.
    assert shown.cost.written >= data[0].nbytes
    assert shown.cost.read >= 2 * data[0].nbytes
    assert shown.cost.calls >= 3 * 500  # sin, cos and exp
    labels = [node.label[0] for node in shown.picture(shown.path[-1]).nodes]
    assert labels.count("exp") >= 1
    # One result for the guard, or for the user, each.
    assert [x for x in labels if x.startswith("result")] == ["result 0", "result 1"]


def test_both_ways_are_in_the_tree(data):
    jf = adarray.jit(branching)
    x, y = data
    with adarray.use("serial"):
        up, down = jf.explain(x, y), jf.explain(-x, y)
    assert up.path[0] == down.path[0]
    assert up.path[1] != down.path[1]
    text = str(down)
    assert "if True: segment" in text
    assert "if False: segment" in text
    assert "call sort" in text
    assert "call sort" not in str(up)


def test_a_run_on_numpy_says_that_nothing_compiles(data):
    jf = adarray.jit(branching)
    with adarray.use("numpy"):
        shown = jf.explain(*data)
    assert shown.backend == "numpy"
    assert shown.kernels == []
    assert "the backend does not compile programs" in str(shown)
    assert "program after the passes" in str(shown)


def test_what_cannot_be_compiled_says_why(data):
    state = []

    def impure(x):
        state.append(1)
        return np.sum(x) * len(state)

    jf = adarray.jit(impure)
    with adarray.use("serial"), warnings.catch_warnings():
        warnings.simplefilter("ignore", adarray.JitWarning)
        shown = jf.explain(data[0])
    assert shown.kernels == []
    (note,) = shown.notes
    assert note.startswith("stays eager for impure(float64[500]): it reads a list that it appends")
    assert note in str(shown)


@pytest.mark.unchecked
def test_profiles_show_the_steps_of_compiled_functions(data):
    jf = adarray.jit(adarray.value_and_grad(branching))
    with adarray.use("serial"):
        shown = jf.explain(*data)
        with adarray.profile() as p:
            for _ in range(4):
                result = jf(*data)
        np.testing.assert_array_equal(result[1], jf(*data)[1])
    calls = {}
    for row in p.rows():
        calls[row.kind] = calls.get(row.kind, 0) + row.calls
    assert calls == {"jit": 4, "kernel": 4 * len(shown.kernels)}
    (whole,) = (r for r in p.rows() if r.kind == "jit")
    assert whole.name == shown.signature
    assert whole.own <= whole.total


def test_profiles_show_the_stages_of_compiling(data):
    jf = adarray.jit(adarray.value_and_grad(branching))
    with adarray.use("serial"), adarray.profile() as p:
        jf(*data)
        jf(*data)
    kinds = {row.kind for row in p.rows()}
    assert {"trace", "passes", "plan", "compile"} <= kinds
    passes = [row.name for row in p.rows() if row.kind == "passes"]
    assert {"dead", "cse", "fold"} <= set(passes)
    traces = [s for s in p.spans if s.kind == "trace"]
    assert len(traces) == 1


def test_long_signatures_are_cut() -> None:
    f = adarray.jit(lambda xs: sum(xs))
    text = f.explain([np.ones(3)] * 40).signature
    assert text.count("float64[3]") == 14
    assert text.endswith(", 26 more)")


@pytest.mark.parametrize("method", ["compile", "explain"])
def test_what_a_call_raises_is_raised_with_a_note(method: str) -> None:
    def half(x):
        return np.matmul(x, np.ones(3)) * 0.5

    with pytest.raises(TypeError) as plain:
        half("a")
    with pytest.raises(TypeError) as caught:
        getattr(adarray.jit(half), method)("a")
    assert (type(caught.value), str(caught.value)) == (type(plain.value), str(plain.value))
    assert caught.value.__notes__ == [
        f"jit: {method} has called half with copies of its arguments to record it, and this is "
        f"what the call raises; give {method} the arguments that half takes"
    ]
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        getattr(adarray.jit(half), method)()


def test_what_is_explained_is_what_calls_run() -> None:
    """The copies on which the function is called have the signature of the arguments."""
    x = np.linspace(0.0, 1.0, 6)
    read_only = x.copy()
    read_only.flags.writeable = False
    for args in ((x[::-1],), (x[::2],), (x, x), (x, x[:]), (read_only,), ([x[::-1]],)):
        jf = adarray.jit(lambda *args: np.sum(args[0]))
        jf(*args)
        jf(*args)
        jf.explain(*args)
        jf.compile(*args)
        assert jf.cache_info()[:2] == (1, 1)
