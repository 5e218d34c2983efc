"""How other libraries meet an ADArray: its array API namespace, device and DLPack."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.base.op import Op, Opaque
from adarray.core.dispatch import apply
from adarray.core.inplace import sync_if_view
from adarray.core.lending import lend
from adarray.core.protocol import traced
from adarray.core.refusals import leaves_graph
from adarray.core.trace import Handle, root_of
from adarray.device import DEVICES, host, is_device

if TYPE_CHECKING:
    from adarray.arrays.adarray import ADArray

    _State = Handle
else:
    _State = object  # the first subclass of Handle is the class that users see


class Interchange(_State):
    """The array API's attributes and methods that NumPy's arrays share with others."""

    __slots__ = ()

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Return `adarray.numpy`, the functions of the array API standard for this array.

        Raises
        ------
        ValueError
            If `api_version` is not one of the versions that it follows.
        """
        xp = importlib.import_module("adarray.numpy")  # stands above this module
        versions = xp._info.API_VERSIONS
        if api_version is not None and api_version not in versions:
            raise ValueError(
                f"__array_namespace__: api_version={api_version!r} is not supported; pass one of "
                f"{', '.join(versions)}"
            )
        return xp

    @property
    def device(self) -> str:
        """The device that holds the values."""
        v: Any = sync_if_view(self)._plain
        return v.library.name if is_device(v) else "cpu"

    def to_device(self, device: Any, /, *, stream: Any = None) -> ADArray:
        """Return the array on `device`; itself if it is there.

        Parameters
        ----------
        device : str
            ``"cpu"``, or the name of a device that a backend has used, such as ``"cuda:0"``.

        Raises
        ------
        ValueError
            For another device, or a stream: the device's current one is used.
        """
        if stream is not None:
            raise ValueError(
                f"to_device: stream={stream!r}, and the device {self.device!r} takes none; leave "
                "it out"
            )
        if device == self.device:
            return self  # type: ignore[return-value]
        if device != "cpu" and device not in DEVICES:
            known = ", ".join(map(repr, ("cpu", *DEVICES)))
            raise ValueError(
                f"to_device: device={device!r} is not known; those in use are {known}: a GPU is "
                "from the first adarray.use('cuda') on"
            )
        ways = {"device": device, "source": self.device}
        return apply(MOVE, (self,), ways)  # type: ignore[no-any-return]

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule with the memory of the values, as `numpy.ndarray.__dlpack__`.

        Raises
        ------
        TraceError
            If the array is traced: its gradient would be lost.
        BufferError
            If ``copy=False`` and the values have no memory that could be shared.
        """
        if traced(self):
            raise leaves_graph("__dlpack__", "keep it an ADArray")
        if is_device(sync_if_view(self)._plain):
            if not copy:
                root_of(self)._frozen = True
            keywords = {"stream": stream, "max_version": max_version, "dl_device": dl_device}
            keywords = {k: v for k, v in keywords.items() if v is not None}
            value: Any = np.copy(self._plain) if copy else self._plain
            return value.__dlpack__(**keywords)
        own: Any = self
        if copy is False and not isinstance(own._plain, np.ndarray):
            raise BufferError(
                "__dlpack__: copy=False of a number, which has no memory to share; pass copy=None"
            )
        memory = lend(own, sys._getframe(1))
        newer = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
        if not memory.flags.writeable or copy:  # not every consumer would honour the flag
            flagged = newer and max_version is not None and max_version >= (1, 0)
            if copy is not False:
                memory = memory.copy()
            elif not flagged:
                raise BufferError("__dlpack__: copy=False of a read-only array; pass copy=None")
        options: dict[str, Any] = {"stream": stream}
        if newer:
            options.update(max_version=max_version, dl_device=dl_device)
        return memory.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's type and number of the device."""
        v: Any = sync_if_view(self)._plain
        return v.__dlpack_device__() if is_device(v) else (1, 0)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Where the values are in the memory of a GPU; only arrays there have it."""
        v: Any = sync_if_view(self)._plain
        if not is_device(v):
            raise AttributeError("__cuda_array_interface__: the array is on the host")
        interface: dict[str, Any] = v.raw.__cuda_array_interface__
        if traced(self):
            raise leaves_graph("__cuda_array_interface__", "keep it an ADArray")
        root_of(self)._frozen = True
        return interface


def _moved(a: Any, device: str, source: str) -> Any:  # noqa: ARG001
    """Return a plain value on another device."""
    if device == "cpu":
        return host(a)
    return DEVICES[device].fetch(a) if is_device(a) else DEVICES[device].place(np.asarray(a))


def _back(g: Any, *_: Any, device: str, source: str) -> Any:
    """Return the cotangent where the operand was; on the host it goes where it is needed."""
    ways = {"device": source, "source": device}
    if "cpu" in (device, source):
        return g
    return apply(MOVE, (g,), ways) if isinstance(g, Handle) else _moved(g, **ways)


MOVE = Op(
    "to_device", _moved, Opaque(), (_back,), jvp="linear", operands=("a",),
    params=("device", "source"), signature="a, device",
    needs=lambda _mask: (False, False),
)  # fmt: skip
