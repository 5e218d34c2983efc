"""The public names: complete, documented, and importable without heavy modules."""

from __future__ import annotations

import importlib.util
import inspect
import subprocess
import sys

import pytest

import adarray


def test_all_is_complete_and_sorted():
    assert sorted(adarray.__all__) == adarray.__all__
    public = {
        n for n, v in vars(adarray).items() if not n.startswith("_") and not inspect.ismodule(v)
    }
    late = set(adarray._LATE)
    assert public | late | {"__version__"} == set(adarray.__all__)
    for name in late:
        assert callable(getattr(adarray, name))


@pytest.mark.parametrize("name", [n for n in adarray.__all__ if n != "__version__"])
def test_public_names_are_documented(name):
    doc = inspect.getdoc(getattr(adarray, name))
    assert doc
    assert len(doc) > 30


def test_public_transforms_follow_numpydoc():
    for name in adarray.transforms.__all__:
        if name in ("no_grad", "custom_jvp", "custom_vjp"):
            continue
        doc = inspect.getdoc(getattr(adarray, name))
        for section in ("Parameters\n", "Returns\n", "Examples\n"):
            assert section in doc, (name, section)


def test_import_is_light():
    code = (
        "import sys, numpy\n"
        "before = set(sys.modules)\n"
        "import adarray\n"
        "heavy = {'optree', 'opt_einsum', 'cffi', 'pycparser', 'importlib.metadata',"
        " 'scipy', 'adarray.testing', 'adarray_backends', 'adarray.intercepting',"
        " 'adarray.numpy', 'numpy.random'} & (set(sys.modules) - before)\n"
        "assert not heavy, heavy\n"
        "assert adarray.testing.check_grads\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="module 'adarray' has no attribute 'gradient'"):
        adarray.gradient  # noqa: B018


def test_dir_lists_what_users_use():
    """It had thirty modules of ours, and neither `jit` nor `intercept`."""
    shown = {n for n in dir(adarray) if not n.startswith("__")}
    modules = {"errors", "estimators", "numpy", "ops", "scipy", "testing"}
    assert shown - modules == {n for n in adarray.__all__ if not n.startswith("__")}
    for name in shown:
        assert inspect.ismodule(getattr(adarray, name)) == (name in modules)


def test_dir_and_completion_import_nothing():
    code = (
        "import sys, adarray\n"
        "before = set(sys.modules)\n"
        "assert 'jit' in dir(adarray)\n"
        "assert not {m for m in set(sys.modules) - before if m.startswith(('adarray', 'scipy'))}\n"
    )
    if importlib.util.find_spec("scipy"):
        code += "assert 'scipy' in dir(adarray)\nassert adarray.scipy.linalg.expm\n"
        code += "assert adarray.scipy.special.erf\n"
    subprocess.run([sys.executable, "-c", code], check=True)
