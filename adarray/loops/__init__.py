"""Loops of Python code, compiled as loops: see ``docs/design/loops.rst``."""

from adarray.loops import rewriting as rewriting
