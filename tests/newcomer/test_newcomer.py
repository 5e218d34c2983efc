"""Programs of people who never heard of adarray run with `grad`, and with `jit` around it."""

import warnings

import pytest
from differential import skip_unless_long
from newcomer_runs import MODULES, NEEDS, Program, compare, grad, programs

import adarray
from adarray.jitting import JitWarning

pytest.importorskip("scipy")
# What is refused, and by which sentence.
REFUSED = {
    "cosine_shrink": "np.asarray: a traced value would leave the graph",
    "holt_winters": "float: a traced value would leave the graph",
    "quaternion_scipy": "np.asarray: a traced value would leave the graph",
}


def _name(program: Program) -> str:
    return getattr(program.function, "__name__", type(program.function).__name__)


def _all() -> list[Program]:
    cases = []
    for module in MODULES:
        for need in NEEDS.get(module, ()):
            pytest.importorskip(need)
        cases += programs(module)
    return cases


ALL = _all()
WORKING = [p for p in ALL if _name(p) not in REFUSED]


@pytest.mark.parametrize("program", WORKING, ids=_name)
def test_gradient(program, capsys):
    compare(program, grad(program.function)(*program.args))


@pytest.mark.slow
@pytest.mark.parametrize("program", WORKING, ids=_name)
def test_compiled_gradient(program, capsys):
    skip_unless_long(WORKING.index(program) % 2 == 0)  # compilers take their time
    jitted = adarray.jit(grad(program.function))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitWarning)  # some stay eager
        for _ in range(3):
            compare(program, jitted(*program.args))


@pytest.mark.parametrize("program", [p for p in ALL if _name(p) in REFUSED], ids=_name)
def test_what_is_refused_says_so(program):
    with pytest.raises(adarray.TraceError, match=REFUSED[_name(program)]):
        grad(program.function)(*program.args)


def test_there_are_enough():
    names = {p.name for p in ALL}
    assert len(names) >= 63
    assert len(names - {p.name for p in WORKING}) <= 2
