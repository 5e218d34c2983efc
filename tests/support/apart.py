"""Tests in a context of their own, so that a backend chosen for good ends with them.

For tests of what stays in effect until a context ends.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any


def apart(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test in a copy of the context: what it leaves chosen ends with it."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        contextvars.copy_context().run(test, *args, **kwargs)

    return run
