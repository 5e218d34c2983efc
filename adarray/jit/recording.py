"""Moved: see `adarray.recording`."""

from adarray.recording import Call, Guard, Recording, Symbol, as_number  # noqa: F401
