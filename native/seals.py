"""In C, what `adarray.base.seals` and `adarray.base.protection` have in Python."""

from __future__ import annotations

import importlib
from typing import Any

_contents: dict[str, Any] = {}
if importlib.import_module("adarray_native._seals").lib.adarray_seals_install(id(_contents)) != 0:
    raise ImportError("the system keeps no account of writes")

Account = _contents["Account"]
finder = _contents["finder"]
protection = _contents["protection"]
