"""Pictures: Graphviz text with clusters, and SVG that is well formed and shows every value."""

import shutil
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned import example

from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.ir.plan import KernelStep, Plan
from adarray.compiler.ir.program import Program, Value
from adarray.jitting.explain.drawing import layered
from adarray.jitting.explain.picture import picture

SVG = "{http://www.w3.org/2000/svg}"


def chain(length, steps=0):
    """Return ``sin(sin(...(x)))`` and, in `steps` equal kernels, its plan."""
    values = [Value("input", (), {"index": 0, "strides": (1,)}, (8,), "float64")]
    for _ in range(length):
        values.append(Value("map", (values[-1],), {"name": "sin"}, (8,), "float64"))
    program = Program(values[:1], values, values[-1:])
    if not steps:
        return program, None
    each = length // steps
    kernel = Kernel((), (), (), ())
    made = tuple(
        KernelStep(kernel, (), (), tuple(values[1 + i * each : 1 + (i + 1) * each]), 0.0)
        for i in range(steps)
    )
    return program, Plan(made, (), (), (), 0)


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
    assert "dot" not in inside
    # x -> multiply -> sin -> sum, product, result 2; and so on
    assert dot.count(" -> ") == 11


def test_constants_stand_in_the_boxes_that_read_them():
    labels = [node.label[0] for node in picture(*example()).nodes]
    assert labels == [
        "input 0", "input 1", "multiply(., 2.0)", "sin", "reduce add", "dot", "multiply",
        "call sort", "result 0", "result 1", "result 2",
    ]  # fmt: skip


def test_values_computed_twice_are_shown_in_both_steps():
    program, plan = example()
    s = plan.steps[0].values[1]
    again = plan.steps[2]._replace(values=(s, *plan.steps[2].values))
    shown = picture(program, plan._replace(steps=(*plan.steps[:2], again, plan.steps[3])))
    assert [n.cluster for n in shown.nodes if n.label[0] == "sin"] == [0, 2]


def test_quotes_and_backslashes_are_escaped():
    x = Value("input", (), {"index": 0, "strides": ()}, (), "float64")
    odd = Value("map", (x,), {"name": 'a"b\\<&>'}, (), "float64")
    shown = picture(Program([x], [x, odd], [odd]))
    assert 'label="a\\"b\\\\<&>\\nfloat64[]"' in shown.dot()
    root = ET.fromstring(shown.svg(graphviz=False))
    assert 'a"b\\<&>' in {t.text for t in root.iter(f"{SVG}text")}


def test_svg_shows_every_box_edge_and_step():
    shown = picture(*example())
    root = ET.fromstring(shown.svg(graphviz=False))
    assert root.tag == f"{SVG}svg"
    of = {}
    for element in root.iter():
        of.setdefault(element.get("class"), []).append(element)
    assert len(of["node"]) == len(shown.nodes)
    assert len(of["edge"]) == len(shown.edges)
    assert len(of["step"]) == 4
    texts = {t.text for t in root.iter(f"{SVG}text")}
    assert {"step 1: product", "sin", "float64[1000, 100]", "result 2"} <= texts
    hints = {t.text for t in root.iter(f"{SVG}title")}
    assert "sort (model.py:16)" in hints


def boxes(root, kind):
    """Return left, top, right, bottom of the rectangles of a class."""
    found = []
    for e in root.iter():
        if e.get("class") == kind:
            r = e if e.tag == f"{SVG}rect" else e.find(f"{SVG}rect")
            x, y, w, h = (float(r.get(k)) for k in ("x", "y", "width", "height"))
            found.append((x, y, x + w, y + h))
    return found


def apart(boxes):
    return all(
        a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        for i, a in enumerate(boxes)
        for b in boxes[:i]
    )


def test_boxes_do_not_overlap_and_lie_inside_of_the_picture():
    root = ET.fromstring(picture(*example()).svg(graphviz=False))
    x, y, w, h = map(float, root.get("viewBox").split())
    nodes, steps = boxes(root, "node"), boxes(root, "step")
    assert apart(nodes)
    assert apart(steps)
    assert all(
        x <= a <= c <= x + w + 1 and y <= b <= d <= y + h + 1 for a, b, c, d in nodes + steps
    )


def test_many_values_are_drawn_as_steps():
    small, large = picture(*chain(20, 4)), picture(*chain(400, 4))
    assert len(small.nodes) == 22
    assert [n.label[:2] for n in large.nodes[1:-1]] == [
        (f"step {i}: kernel", "100 x sin") for i in range(4)
    ]
    assert large.edges == [(i, i + 1) for i in range(5)]
    assert len(picture(*chain(400, 4), values=True).nodes) == 402


def test_a_long_chain_is_drawn_without_recursion():
    root = ET.fromstring(picture(*chain(3000), values=True).svg(graphviz=False))
    assert len(boxes(root, "node")) == 3002


def test_files(tmp_path):
    shown = picture(*example())
    shown.save(tmp_path / "p.dot")
    shown.save(tmp_path / "p.svg")
    assert (tmp_path / "p.dot").read_text() == shown.dot()
    assert ET.fromstring((tmp_path / "p.svg").read_text()).tag == f"{SVG}svg"


def test_graphviz_is_asked_for_and_not_there(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="'dot' of Graphviz is not on PATH; install"):
        picture(*example()).svg(graphviz=True)
    assert "adarray-arrow" in picture(*example()).svg()


def test_graphviz_draws_if_it_is_there(tmp_path, monkeypatch):
    # A stand-in that counts the clusters it was given.
    program = tmp_path / "dot"
    program.write_text(
        "#!/bin/sh\necho \"<?xml version='1.0'?>\"\n"
        'echo "<svg><text>$(grep -c subgraph)</text></svg>"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert shutil.which("dot") == str(program)
    assert picture(*example()).svg().strip() == "<svg><text>4</text></svg>"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_layers_keep_boxes_apart_and_edges_going_down(data):
    count = data.draw(st.integers(1, 14))
    sizes = [(20.0 + 5 * data.draw(st.integers(0, 9)), 20.0) for _ in range(count)]
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    made = layered(sizes, edges)
    rects = [
        (x - w / 2, y - h / 2, x + w / 2, y + h / 2)
        for (x, y), (w, h) in zip(made.centers, sizes, strict=True)
    ]
    shrunk = [(a + 1e-6, b + 1e-6, c - 1e-6, d - 1e-6) for a, b, c, d in rects]
    assert apart(shrunk)
    assert all(a >= -1e-6 and c <= made.width + 1e-6 for a, _, c, _ in rects)
    for a, b in edges:
        ys = [made.centers[a][1], *(y for _, y in made.routes[a, b]), made.centers[b][1]]
        assert np.all(np.diff(ys) > 0)


def test_of_thousands_of_steps_the_first_are_drawn():
    shown = picture(*chain(3000, 1000))
    labels = [n.label[0] for n in shown.nodes]
    assert labels[:3] == ["input 0", "step 0: kernel", "step 1: kernel"]
    assert labels[-2:] == ["and 750 more steps", "result 0"]
    assert shown.edges[-1] == (len(labels) - 2, len(labels) - 1)
    root = ET.fromstring(shown.svg(graphviz=False))
    assert len(boxes(root, "node")) == len(labels)


def test_edges_across_many_layers_take_no_room():
    program, _ = chain(100)
    both = Value("map", (program.values[0], program.values[-1]), {"name": "add"}, (8,), "float64")
    values = [*program.values, both]
    made = layered([(50.0, 20.0)] * 102, [(i, i + 1) for i in range(101)] + [(0, 101)])
    assert made.width == 50.0
    assert made.routes[0, 101] == []
    root = ET.fromstring(picture(Program(values[:1], values, [both])).svg(graphviz=False))
    assert apart(boxes(root, "node"))
