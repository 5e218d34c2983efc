"""Printed kernels compiled by NVRTC, kept by their text."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import adarray_native
import cupy

from adarray.codegen import cuda
from adarray.errors import CompileError

HEADERS = Path(adarray_native.__file__).parent
OPTIONS = ("--std=c++17", f"-I{HEADERS}", "-diag-suppress=177,550,186")
DEFAULT_SHARED = 48 << 10  # bytes of shared memory that a kernel may have without asking
_lock = threading.Lock()
_functions: dict[tuple[int, str], Any] = {}


def load(texts: Iterable[cuda.Text]) -> dict[str, Any]:
    """Return the kernels of texts, and those that follow them, by name.

    Raises
    ------
    CompileError
        If NVRTC refuses a text; the message names the file that it was written to.
    """
    device = cupy.cuda.runtime.getDevice()
    wanted = {t.name: t for t in texts}
    with _lock:
        missing = [t for n, t in wanted.items() if (device, n) not in _functions]
        with ThreadPoolExecutor(max_workers=8) as pool:
            for text, module in zip(missing, pool.map(_compiled, missing), strict=True):
                for name in (text.name, *text.followers):
                    _functions[device, name] = module.get_function(name)
    names = [n for t in wanted.values() for n in (t.name, *t.followers)]
    return {n: _functions[device, n] for n in names}


def _compiled(text: cuda.Text) -> Any:
    module = cupy.RawModule(code=text.text, options=OPTIONS, backend="nvrtc")
    try:
        module.compile()
    except cupy.cuda.compiler.CompileException as error:
        import tempfile

        with tempfile.NamedTemporaryFile("w", suffix=".cu", delete=False) as file:
            file.write(text.text)
        raise CompileError(
            f"NVRTC refused a printed kernel, kept as {file.name}: {str(error)[:2000]}"
        ) from error
    return module
