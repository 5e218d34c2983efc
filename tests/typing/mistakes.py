"""Mistakes that a type checker finds in code that uses adarray; each line says what."""

from __future__ import annotations

from adarray import ADArray
from adarray.context import copy_context


def mistakes(x: ADArray) -> None:
    x.summ()  # error: has no attribute "summ"
    x.sum(axes=0)  # error: Unexpected keyword argument "axes"
    x.sort().max()  # error: "None" has no attribute "max"
    y: str = x.T  # error: Incompatible types in assignment
    x.fill()  # error: Missing positional argument "value"
    del y
    copy_context(len)(3)  # error: incompatible type "int"
