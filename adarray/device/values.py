"""How the modules below `adarray.device.array` know a value of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeGuard

if TYPE_CHECKING:
    from adarray.device.array import DeviceArray


class DeviceValue:
    """Base of `DeviceArray`."""

    __slots__ = ()


def on_device(x: Any) -> TypeGuard[DeviceArray]:
    """Whether a value is in the memory of a device."""
    return isinstance(x, DeviceValue)
