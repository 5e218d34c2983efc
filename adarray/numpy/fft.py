"""`numpy.fft` with ADArrays; the array API's Fourier transform extension."""

from __future__ import annotations

from typing import Any

import numpy as _np

from adarray.core.protocol import plain as _plain
from adarray.core.protocol import traced as _traced
from adarray.numpy import _creation, _lift, _modules

__getattr__, __dir__ = _modules.attribute(_np.fft, _lift.wrapped, globals())
__all__ = [n for n in dir(_np.fft) if not n.startswith("_") and n not in ("helper", "test")]


def _frequencies(name: str) -> Any:
    function = getattr(_np.fft, name)

    def frequencies(n: Any, d: Any = 1.0, dtype: Any = None, device: Any = None) -> Any:
        _creation.check_device(device, name)
        if _traced(d):  # the frequencies are proportional to the inverse of the spacing
            r = _lift.lift(function(_plain(n), 1.0)) / d
        else:
            r = _lift.lift(function(_plain(n), _plain(d)))
        return r if dtype is None else _creation.FUNCTIONS["asarray"](r, dtype)

    frequencies.__name__ = frequencies.__qualname__ = name
    frequencies.__doc__ = f"As `numpy.fft.{name}`; `dtype` is the array API's."
    return frequencies


fftfreq = _frequencies("fftfreq")
rfftfreq = _frequencies("rfftfreq")
