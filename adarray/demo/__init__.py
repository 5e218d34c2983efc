"""``python -m adarray demo``: a plain NumPy network trained on every backend.

`adarray.demo.network` is the network, and does not import adarray; the digits in
``digits.npz`` are those of scikit-learn's ``load_digits``.
"""

from adarray.demo.run import DemoOptions, demo

__all__ = ["DemoOptions", "demo"]
