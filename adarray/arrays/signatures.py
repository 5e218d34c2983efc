"""Where type checkers look for the methods of ADArrays that `adarray.ops` installs.

Their signatures are in signatures.pyi, next to this file.
"""


class Methods:
    """Methods that are NumPy functions with the array as the first argument."""

    __slots__ = ()
