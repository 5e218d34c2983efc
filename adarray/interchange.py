"""How other libraries meet an ADArray: its array API namespace, device and DLPack."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.inplace import sync_if_view
from adarray.protocol import traced
from adarray.refusals import leaves_graph
from adarray.trace import Handle

if TYPE_CHECKING:
    from adarray.array import ADArray

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
        return "cpu"

    def to_device(self, device: Any, /, *, stream: Any = None) -> ADArray:
        """Return the array on `device`, of which there is one: ``"cpu"``.

        Raises
        ------
        ValueError
            For another device, or a stream, which this one has not.
        """
        if stream is not None:
            raise ValueError(f'to_device: stream={stream!r}, and the device "cpu" has no streams')
        if device != "cpu":
            raise ValueError(f'to_device: device={device!r} is not known; the only device is "cpu"')
        return self  # type: ignore[return-value]

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule with a copy of the values.

        Raises
        ------
        TraceError
            If the array is traced: its gradient would be lost.
        BufferError
            If ``copy=False``: a consumer could write into memory that the graph relies on.
        """
        if traced(self):
            raise leaves_graph("__dlpack__", "keep it an ADArray")
        if copy is False:
            raise BufferError(
                "__dlpack__: copy=False, and a consumer could write into memory that recorded "
                "operations rely on; pass copy=None"
            )
        options: dict[str, Any] = {"stream": stream}
        if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
            options.update(max_version=max_version, dl_device=dl_device)
        return np.array(sync_if_view(self)._v).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's number of the device: the host's."""
        return (1, 0)
