"""Environment variables with a few allowed values; an error for others names the variable."""

from __future__ import annotations

import os


def switch(name: str, default: bool) -> bool:
    """Return whether an environment variable is 1; where it is unset or empty, the default.

    Raises
    ------
    ValueError
        If it is neither 0 nor 1.
    """
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    if value not in ("0", "1"):
        raise ValueError(wrong(name, value, "0 (off) and 1 (on)"))
    return value == "1"


def wrong(name: str, value: str, allowed: str) -> str:
    """Return the message for a value of an environment variable that is not allowed."""
    return f"the environment variable {name} is {value!r}; allowed are {allowed}; or unset it"
