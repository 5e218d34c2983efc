"""Arrays in the memory of a device, which ADArrays may hold in place of ndarrays.

A backend describes its array library as a `Library`. Values of it that take part in
adarray's computations are `DeviceArray`: duck arrays that pass for ndarrays and NumPy
scalars, so that operations and derivative rules, which call NumPy, run on the device by
NumPy's dispatch protocols. What the library lacks is computed by NumPy on the host; every
transfer is counted, and `adarray.profile` shows it.
"""

from adarray.device.array import DeviceArray, Form, form_of, host, is_device
from adarray.device.kinds import KINDS, adopt, of_dlpack
from adarray.device.library import DEVICES, DeviceEngine, Library

__all__ = [
    "DEVICES", "KINDS", "DeviceArray", "DeviceEngine", "Form", "Library", "adopt",
    "form_of", "host", "is_device", "of_dlpack",
]  # fmt: skip
