"""What names in intercepted modules are bound to answers as what it stands for."""

from __future__ import annotations

import copy
import math
import pickle
import sys
import types

import numpy as np
import pytest

import adarray
from adarray.intercepting.standins import ModuleStandIn

SOURCE = """
import numpy as np
from numpy import array as make, exp
from math import sqrt

def pair(x):
    return make([x, exp(x)])

def filled(x):
    out = np.zeros(3)
    for i in range(3):
        out[i] = sqrt(x) * i
    return out.sum()
"""


def test_stand_ins_answer_as_what_they_stand_for(client) -> None:
    module = client("client_attributes", SOURCE)
    adarray.wrap(module.pair)(adarray.array(1.0))
    assert isinstance(module.np, types.ModuleType)
    assert repr(module.np) == repr(np)
    assert dir(module.np) == dir(np)
    assert module.np == np
    assert hash(module.np) == hash(np)
    assert module.np.linalg is np.linalg
    assert isinstance(module.exp, np.ufunc)
    assert module.exp == np.exp
    assert np.exp == module.exp
    assert module.exp != np.sin
    assert {np.exp: 1}[module.exp] == 1
    assert module.exp.nin == 1
    assert module.exp.__doc__ == np.exp.__doc__
    assert module.make.__module__ == "numpy"
    assert repr(module.make) == repr(np.array)
    assert callable(module.make)
    assert copy.copy(module.exp) == copy.deepcopy(module.exp) == np.exp
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(module.exp, protocol)) is np.exp
        assert pickle.loads(pickle.dumps(module.make, protocol)) is np.array
        assert pickle.loads(pickle.dumps(module.sqrt, protocol)) is math.sqrt


def test_a_pickle_does_not_need_adarray(client) -> None:
    module = client("client_pickle", SOURCE)
    adarray.wrap(module.pair)(adarray.array(1.0))
    assert b"adarray" not in pickle.dumps([module.exp, module.make])


def test_setting_an_attribute_of_a_stand_in_sets_the_original(client) -> None:
    package = types.ModuleType("numpy.adarray_test")
    package.value = 1  # type: ignore[attr-defined]
    sys.modules["numpy.adarray_test"] = package
    try:
        module = client("client_setting", "import sys\nmod = sys.modules['numpy.adarray_test']\n")
        with adarray.intercept("client_setting"):
            assert isinstance(module.mod, ModuleStandIn)
            assert module.mod.value == 1
            module.mod.value = 2
            assert package.value == 2
            assert module.mod.value == 2
            del module.mod.value
            assert not hasattr(package, "value")
    finally:
        del sys.modules["numpy.adarray_test"]


def test_cloudpickle(client) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")
    module = client("client_cloud", SOURCE)
    adarray.wrap(module.pair)(adarray.array(1.0))
    cloudpickle.register_pickle_by_value(module)
    try:
        data = cloudpickle.dumps(module.filled)
    finally:
        cloudpickle.unregister_pickle_by_value(module)
    assert pickle.loads(data)(0.3) == module.filled(0.3)


def test_float_is_left_alone_where_identity_is_asked(client) -> None:
    module = client(
        "client_identity",
        """
import numpy as np
def f(x):
    return type(x) is float
def g(x):
    return float(x)
""",
    )
    with adarray.intercept("client_identity"):
        pass
    assert "float" not in vars(module)
    assert module.f(1.0) is True
    module = client(
        "client_float",
        """
import numpy as np
class Real(float):
    pass
def g(x):
    return float(x) * 2.0
def kinds(x):
    return isinstance(x, float), issubclass(type(x), float), type(x) == float
def derived():
    class Local(float):
        pass
    return Local
""",
    )
    with adarray.intercept("client_float"):
        assert adarray.grad(module.g)(1.5) == 2.0
    assert module.g("1.5") == 3.0
    assert type(module.g(np.float32(1.5))) is float
    assert module.kinds(1.0) == (True, True, True)
    assert module.kinds(1) == (False, False, False)
    assert module.kinds(np.float64(1)) == (True, True, False)
    local = module.derived()
    assert type(local(2.0)) is local
    assert isinstance(local(2.0), local)
    assert not isinstance(2.0, local)
    assert issubclass(local, float)
    assert local(2.0) == 2.0
