"""Mistakes that a type checker finds in code that uses adarray; each line says what."""

from __future__ import annotations

import adarray
from adarray import ADArray
from adarray.base.context import copy_context


def mistakes(x: ADArray) -> None:
    x.summ()  # error: has no attribute "summ"
    x.sum(axes=0)  # error: Unexpected keyword argument "axes"
    x.sort().max()  # error: "None" has no attribute "max"
    y: str = x.T  # error: Incompatible types in assignment
    x.fill()  # error: Missing positional argument "value"
    del y
    copy_context(len)(3)  # error: incompatible type "int"


def loss(w: ADArray, x: ADArray) -> ADArray:
    return w * x


@adarray.jit(donate=0)
def step(w: ADArray, x: ADArray) -> ADArray:
    return w - x


def calls(x: ADArray) -> None:
    adarray.grad(loss)(x)  # error: Too few arguments
    adarray.value_and_grad(loss)(x, x, x)  # error: Too many arguments
    adarray.jit(loss)(x)  # error: Missing positional argument "x"
    step(x, y=x)  # error: Unexpected keyword argument "y"
    step(x, "x")  # error: incompatible type "str"
    adarray.jit(donat=0)  # error: Unexpected keyword argument "donat"
