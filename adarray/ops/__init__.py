"""The operations: one record each, in modules by kind."""

import numpy as np

from adarray.arrays.adarray import install_methods
from adarray.base.op import METHODS
from adarray.ops import (  # noqa: F401
    bessel,
    borrow,
    calculus,
    common,
    complex,  # noqa: A004  (a module)
    constants,
    contraction,
    creation,
    decompositions,
    eigen,
    elementwise,
    fft,
    floats,
    functional,
    histograms,
    indexing,
    joining,
    methods,
    missing,
    nn,
    norms,
    order,
    padding,
    polynomial,
    products,
    pseudoinverse,
    quantiles,
    ranges,
    reduction,
    scan,
    sets,
    shape,
    sliding,
    solvers,
    statistics,
    ufunc,
    windows,
    writing,
)

install_methods({name: op.numpy for name, op in METHODS.items()})
install_methods(
    {
        "all": np.all, "any": np.any, "argmax": np.argmax, "argmin": np.argmin,
        "argsort": np.argsort, "argpartition": np.argpartition, "nonzero": np.nonzero,
        "searchsorted": np.searchsorted, "round": np.round, "dot": np.dot,
        "clip": elementwise.clip_method,
        "take": np.take, "ravel": np.ravel, "trace": np.trace, "ptp": np.ptp,
        "compress": indexing.compress_method, "put": np.put,
        "sort": order.sort_inplace, "partition": order.partition_inplace, "fill": writing.fill,
    }
)  # fmt: skip
install_methods(methods.METHODS)
