"""Every transform around every other, and nests of three: polynomials know what is right."""

from __future__ import annotations

import random

import numpy as np
import pytest
from polynomials import BASE, OPERATORS, OUTERMOST, base, value

from adarray.errors import ForwardModeError

X = np.array([0.7, -0.4])
ALL = {**OPERATORS, **OUTERMOST}
# What takes forward mode through a function with a rule of reverse mode alone is refused.
FORWARD = {"jvp", "directional_derivative", "jacfwd", "jet"}
QUICK = {"grad", "jvp"}


def check(*names: str) -> None:
    """Compare a nest, the outermost first, with its polynomial: recorded, and as known then."""
    f, known = base, BASE
    for name in reversed(names):
        f, known = ALL[name].of(f), ALL[name].known(known)
    for x in (X, 0.5 * X):
        try:
            actual = f(x)
        except ForwardModeError:
            if "custom_vjp" not in names:
                raise
            return
        np.testing.assert_allclose(
            actual, value(known, x), rtol=1e-8, atol=1e-9, err_msg=f"{names}"
        )


@pytest.mark.parametrize(
    "outer", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in ALL]
)
def test_pairs(outer: str) -> None:
    for inner in OPERATORS:
        if inner == "jit" and outer in QUICK:
            continue  # below
        check(outer, inner)


@pytest.mark.slow
@pytest.mark.parametrize("outer", OPERATORS)
def test_pairs_with_jit_around_between_and_inside(outer: str) -> None:
    check(outer, "jit")
    for inner in OPERATORS:
        check("jit", outer, inner)
        if inner in ("grad", "vmap", "jet", "checkpointed_loop", "custom_linear_solve"):
            check(outer, "jit", inner)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_nests_of_three(seed: int) -> None:
    rng = random.Random(seed)
    names = [n for n in OPERATORS if n != "jit"]
    for _ in range(10):
        check(rng.choice(list(ALL)), rng.choice(names), rng.choice(names))


@pytest.mark.parametrize("outer", sorted(FORWARD))
def test_forward_mode_through_a_rule_of_reverse_mode(outer: str) -> None:
    with pytest.raises(ForwardModeError, match="give it a rule by custom_jvp, which serves both"):
        ALL[outer].of(OPERATORS["custom_vjp"].of(base))(X)
