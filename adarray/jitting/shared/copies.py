"""Copies of arguments, for calls that must not change them and have their signature."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np


def copies(leaves: list[Any]) -> list[Any]:
    """Return arguments with copies of what a call may change.

    Objects that are the same stay the same, and views of one array are views of one copy.
    """
    memo: dict[int, Any] = {}
    owners: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    arguments = []
    for x in leaves:
        if type(x) is np.ndarray and not x.dtype.hasobject:
            if id(x) not in memo:
                memo[id(x)] = _like(x, owners)
            x = memo[id(x)]
        elif isinstance(x, (np.ndarray, np.random.Generator, np.random.RandomState)):
            x = copy.deepcopy(x, memo)
        arguments.append(x)
    return arguments


def _like(x: np.ndarray, owners: dict[int, tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return an array that lies in the copy of the memory of `x` as `x` does in its own."""
    owner = x
    while type(owner.base) is np.ndarray:
        owner = owner.base
    low, high = np.lib.array_utils.byte_bounds(owner)
    if id(owner) not in owners:
        whole = owner.copy("K")
        if owner.base is None and whole.strides == owner.strides:
            memory = whole.ravel("K").view(np.uint8)
        else:
            memory = np.empty(high - low, np.uint8)
            start = _address(owner) - low
            whole = np.ndarray(owner.shape, owner.dtype, memory, start, owner.strides)
            whole[...] = owner
        owners[id(owner)] = whole, memory
    whole, memory = owners[id(owner)]
    if x is owner:
        array = whole
    else:
        array = np.ndarray(x.shape, x.dtype, memory, _address(x) - low, x.strides)
    array.flags.writeable = x.flags.writeable
    return array


def _address(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])
