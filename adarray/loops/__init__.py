"""Loops of Python code, compiled as loops: see ``docs/design/loops.rst``."""
