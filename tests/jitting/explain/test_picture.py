"""Pictures: Graphviz text with clusters, which `dot` draws if it is there."""

import re
import shutil
import xml.etree.ElementTree as ET

import pytest
from dot_program import COUNTS_CLUSTERS, install
from planned import example

from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.ir.plan import KernelStep, Plan
from adarray.compiler.ir.primitives import Map, ProgramInput
from adarray.compiler.ir.program import Program, Value
from adarray.jitting.explain import picture as pictures
from adarray.jitting.explain.picture import picture

SVG = "{http://www.w3.org/2000/svg}"
INSTALL = (
    "picture: the program 'dot' of Graphviz, which draws pictures, is not on PATH; install it "
    "(for instance with apt, brew or conda: graphviz), or give the text of .dot() to a viewer of "
    "Graphviz"
)
with_graphviz = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")


def chain(length, steps=0):
    """Return ``sin(sin(...(x)))`` and, in `steps` equal kernels, its plan."""
    values = [Value(ProgramInput(0, (1,)), (), (8,), "float64")]
    for _ in range(length):
        values.append(Value(Map("sin"), (values[-1],), (8,), "float64"))
    program = Program(values[:1], values, values[-1:])
    if not steps:
        return program, None
    each = length // steps
    kernel = Kernel((), (), (), ())
    result = tuple(
        KernelStep(kernel, (), (), tuple(values[1 + i * each : 1 + (i + 1) * each]), 0.0)
        for i in range(steps)
    )
    return program, Plan(result, (), (), (), 0)


def test_dot_has_a_cluster_for_each_step_and_all_edges():
    dot = picture(*example()).dot()
    assert dot.startswith("digraph program {")
    assert dot.rstrip().endswith("}")
    assert dot.count("{") == dot.count("}")
    for i, kind in enumerate(("kernel", "product", "kernel", "call")):
        assert f"subgraph cluster_{i} {{" in dot
        assert f'label="step {i}: {kind}"' in dot
    inside = dot[dot.index("cluster_0") : dot.index("cluster_1")]
    assert "multiply(., 2.0)" in inside
    assert "reduce add" in inside
    assert 'tooltip="sin (model.py:12)"' in inside
    assert "matmul" not in inside
    # x -> multiply -> sin -> sum, product, result 2; and so on
    assert dot.count(" -> ") == 11


def test_constants_stand_in_the_boxes_that_read_them():
    labels = [node.label[0] for node in picture(*example()).nodes]
    assert labels == [
        "input 0", "input 1", "multiply(., 2.0)", "sin", "reduce add", "matmul", "multiply",
        "call sort", "result 0", "result 1", "result 2",
    ]  # fmt: skip


def test_values_computed_twice_are_shown_in_both_steps():
    program, plan = example()
    s = plan.steps[0].values[1]
    again = plan.steps[2]._replace(values=(s, *plan.steps[2].values))
    shown = picture(program, plan._replace(steps=(*plan.steps[:2], again, plan.steps[3])))
    assert [n.cluster for n in shown.nodes if n.label[0] == "sin"] == [0, 2]


def test_quotes_and_backslashes_are_escaped():
    x = Value(ProgramInput(0, ()), (), (), "float64")
    odd = Value(Map('a"b\\<&>'), (x,), (), "float64")
    shown = picture(Program([x], [x, odd], [odd]))
    assert 'label="a\\"b\\\\<&>\\nfloat64[]"' in shown.dot()


@with_graphviz
def test_graphviz_reads_the_text():
    shown = picture(*example())
    root = ET.fromstring(shown.svg())
    groups = [g.get("class") for g in root.iter(f"{SVG}g")]
    assert groups.count("node") == len(shown.nodes)
    assert groups.count("edge") == len(shown.edges)
    assert groups.count("cluster") == 4
    texts = {t.text.replace("\xa0", " ") for t in root.iter(f"{SVG}text")}
    assert {"step 1: product", "sin", "float64[1000, 100]", "result 2"} <= texts


@with_graphviz
def test_graphviz_reads_quotes_and_backslashes():
    x = Value(ProgramInput(0, ()), (), (), "float64")
    odd = Value(Map('a"b\\<&>'), (x,), (), "float64")
    root = ET.fromstring(picture(Program([x], [x, odd], [odd])).svg())
    assert 'a"b\\<&>' in {t.text for t in root.iter(f"{SVG}text")}


def test_many_values_are_drawn_as_steps():
    small, large = picture(*chain(20, 4)), picture(*chain(400, 4))
    assert len(small.nodes) == 22
    assert [n.label[:2] for n in large.nodes[1:-1]] == [
        (f"step {i}: kernel", "100 x sin") for i in range(4)
    ]
    assert large.edges == [(i, i + 1) for i in range(5)]
    assert len(picture(*chain(400, 4), values=True).nodes) == 402


def test_a_long_chain_takes_no_recursion():
    assert picture(*chain(3000), values=True).dot().count(" -> ") == 3001


def test_files(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, 'printf "drawn %s" "$*"')
    shown = picture(*example())
    for name in ("p.dot", "p.gv"):
        shown.save(tmp_path / name)
        assert (tmp_path / name).read_text() == shown.dot() == str(shown)
    for name, content in {
        "p.svg": "drawn -Tsvg",
        "p.png": "drawn -Tpng",
        "p": "drawn -Tsvg",
    }.items():
        shown.save(str(tmp_path / name))
        assert (tmp_path / name).read_text() == content


def test_without_graphviz_there_is_the_text_and_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    shown = picture(*example())
    for draw in (shown.svg, lambda: shown.save(tmp_path / "p.svg")):
        with pytest.raises(FileNotFoundError, match=f"^{re.escape(INSTALL)}$"):
            draw()
    assert not (tmp_path / "p.svg").exists()
    html = ET.fromstring(f"<html>{shown._repr_html_()}</html>")
    assert [e.tag for e in html] == ["p", "pre"]
    assert [e.text for e in html] == [INSTALL, shown.dot()]


def test_graphviz_draws_if_it_is_there(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, COUNTS_CLUSTERS)
    shown = picture(*example())
    assert shown.svg().strip() == "<svg><text>4</text></svg>"
    assert "<svg><text>4</text></svg>" in shown._repr_html_()


def test_graphviz_fails(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, "echo no memory >&2; exit 1")
    shown = picture(*example())
    with pytest.raises(RuntimeError, match=r"^picture: dot failed: no memory$"):
        shown.svg()
    assert shown._repr_html_().startswith("<p>picture: dot failed: no memory</p><pre>digraph")


def test_graphviz_takes_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "SECONDS", 0.2)
    install(tmp_path, monkeypatch, "exec sleep 30")
    with pytest.raises(
        RuntimeError, match=r"^picture: dot took more than 0\.2 s; the text of \.dot"
    ):
        picture(*example()).svg()


def test_of_thousands_of_steps_the_first_are_drawn():
    shown = picture(*chain(3000, 1000))
    labels = [n.label[0] for n in shown.nodes]
    assert labels[:3] == ["input 0", "step 0: kernel", "step 1: kernel"]
    assert labels[-2:] == ["and 750 more steps", "result 0"]
    assert shown.edges[-1] == (len(labels) - 2, len(labels) - 1)
