"""The serial and openmp backends around their kernels: options, cutoffs, threads, forks, exits."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.backend import load
from adarray.base.op import OPS, Pointwise
from adarray.errors import BackendError


def _engine(name: str, **options: Any) -> Any:
    """Return an engine, or skip where the C modules are not built."""
    try:
        return load(name).engine(**options)
    except BackendError as error:
        pytest.skip(str(error))


def test_small_arrays_stay_with_numpy() -> None:
    for backend in ("serial", "openmp"):
        engine = _engine(backend)
        x = np.ones(100)
        assert engine.pointwise(OPS["exp"], (x,)) is NotImplemented
        assert engine.derivative(OPS["tanh"], 0, x, (x, None)) is NotImplemented
        assert engine.call(OPS["sum"], (x,), {}) is NotImplemented
        big = np.linspace(0.1, 1, 200_000)
        assert engine.pointwise(OPS["add"], (big, big)) is not NotImplemented
        assert engine.call(OPS["sum"], (big,), {}) is not NotImplemented
        assert engine.derivative(OPS["tanh"], 0, big, (big, None)) is not NotImplemented
        # A product of small operands may be big.
        assert engine.pointwise(OPS["add"], (big[:1000, None], big[:1000])) is not NotImplemented


@pytest.mark.parametrize("name", ["serial", "openmp"])
def test_an_edited_record_is_not_computed_by_its_old_kernel(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.linspace(0.1, 1, 100)
    sin = OPS["sin"]
    assert _engine(name, cutoff=0).pointwise(sin, (x,)) is not NotImplemented
    monkeypatch.setattr(sin, "lower", Pointwise(lambda v: np.sin(v) * 1.5))
    assert load(name).engine(cutoff=0).pointwise(sin, (x,)) is NotImplemented
    monkeypatch.setattr(sin, "rules", (lambda g, out, v: g * np.cos(v) * 1.5,))
    assert load(name).engine(cutoff=0).derivative(sin, 0, x, (None, x)) is NotImplemented


OPTIONS = [
    ("openmp", {"threads": 0}, "the option threads is 0; pass an integer of at least 1"),
    ("openmp", {"threads": 1.5}, "the option threads is 1.5; pass an integer of at least 1"),
    ("openmp", {"threads": True}, "the option threads is True; pass an integer of at least 1"),
    ("serial", {"cutoff": -1}, "the option cutoff is -1; pass an integer of at least 0"),
    ("serial", {"speed": 9}, "unknown option 'speed'; it takes threads, cutoff"),
    (
        "serial",
        {"threads": 2},
        "the option threads is 2, and this backend computes with one thread; "
        "use the backend 'openmp'",
    ),
]


@pytest.mark.parametrize(("name", "options", "message"), OPTIONS)
def test_wrong_options(name: str, options: dict[str, Any], message: str) -> None:
    _engine(name)
    with pytest.raises(BackendError) as caught:
        adarray.use(name, **options)
    assert str(caught.value) == f"backend '{name}': {message}"


def test_default_threads_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    _engine("openmp")
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert load("openmp").engine().threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    with pytest.raises(BackendError, match="the environment variable OMP_NUM_THREADS is 'many'"):
        load("openmp").engine()
    assert load("openmp").engine(threads=2).threads == 2


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads are not bound here")
def test_bound_threads_use_all_processors() -> None:
    """OMP_PROC_BIND binds the main thread to one processor, which is not the number of threads."""
    _engine("openmp")
    code = (
        "import os; usable = len(os.sched_getaffinity(0))\n"
        "from adarray.backend import load\n"
        "engine = load('openmp').engine(); print(usable, engine.threads)\n"
    )
    env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True,
        env={**env, "OMP_PROC_BIND": "spread"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    usable, threads = done.stdout.split()
    assert threads == usable


def test_a_missing_module_says_what_to_do() -> None:
    code = (
        "import sys; sys.modules['adarray_native._serial'] = None\n"
        "import adarray\n"
        "from adarray.backend import load\n"
        "print(load('serial').info()['status'])\n"
        "try: adarray.use('serial')\n"
        "except adarray.BackendError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    status, message = done.stdout.strip().split("\n")
    assert status == "unavailable"
    assert message.startswith("backend 'serial': its C module is missing (")
    assert message.endswith(
        "because no C compiler worked when adarray was installed; install one (gcc, with OpenMP "
        "for 'openmp') and reinstall adarray, or use the backend 'numpy'"
    )


@pytest.mark.parametrize("level", ["base", "avx2", "avx512"])
def test_every_level_computes(level: str) -> None:
    """What an older processor would run; on one without the level, the best below it."""
    _engine("serial")
    code = (
        "import numpy as np\n"
        "from adarray.backend import load\n"
        "from adarray.base.op import OPS\n"
        "import adarray\n"
        "backend = load('serial'); engine = backend.engine(cutoff=0)\n"
        "x = np.linspace(-5, 5, 10001)\n"
        "for t in (np.float64, np.float32):\n"
        "    for name in ('exp', 'tanh', 'sin', 'expm1'):\n"
        "        got = engine.pointwise(OPS[name], (x.astype(t),))\n"
        "        want = OPS[name].evaluate(x.astype(t))\n"
        "        assert np.all(np.abs(got - want) <= 4 * np.spacing(np.abs(want))), name\n"
        "print(backend.info()['simd'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"ADARRAY_SIMD": level}
    )
    assert done.returncode == 0, done.stderr
    order = ["base", "avx2", "avx512"]
    assert order.index(done.stdout.strip()) <= order.index(level)


def test_an_unknown_level_is_refused() -> None:
    _engine("serial")
    code = (
        "import adarray\n"
        "try: adarray.use('serial')\n"
        "except adarray.BackendError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"ADARRAY_SIMD": "mmx"}
    )
    assert done.stdout.strip() == (
        "backends serial and openmp: the environment variable ADARRAY_SIMD is 'mmx'; "
        "allowed are base, avx2, avx512; or unset it"
    )


def _gradient(backend: str, **options: Any) -> np.ndarray:
    x = np.linspace(0.1, 2, 50_000)
    with adarray.use(backend, cutoff=0, **options):
        return np.asarray(adarray.grad(lambda a: np.sum(np.tanh(a) * np.exp(a)))(x))


def _in_child(results: Any) -> None:
    results.put(float(np.sum(_gradient("openmp", threads=2))))


def test_fork_after_openmp() -> None:
    """The child has none of the pool's threads, and must not wait for them."""
    _engine("openmp")
    expected = float(np.sum(_gradient("openmp", threads=2)))
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with warnings.catch_warnings():
        # Python 3.12 warns of any fork while there are threads, those of other tests included.
        warnings.simplefilter("ignore", DeprecationWarning)
        children = [context.Process(target=_in_child, args=(results,)) for _ in range(3)]
        for child in children:
            child.start()
    try:
        for _ in children:
            assert results.get(timeout=60) == expected
    finally:
        for child in children:
            child.join(10)
            if child.is_alive():
                child.kill()
    # The parent starts a new thread pool.
    assert float(np.sum(_gradient("openmp", threads=2))) == expected


@pytest.mark.slow
def test_clean_exits_after_openmp() -> None:
    """Python ends while the pool's threads are there; each child starts a pool of its own."""
    _engine("openmp")
    code = (
        "import os, sys, numpy as np, adarray\n"
        "def run():\n"
        "    with adarray.use('openmp', threads=2, cutoff=0):\n"
        "        adarray.grad(lambda x: np.sum(np.exp(x)))(np.ones(100000))\n"
        "for _ in range(int(sys.argv[1])):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        run()\n"
        "        sys.exit()\n"
        "    status = os.waitpid(child, 0)[1]\n"
        "    assert status == 0, status\n"
        "run()\n"
    )
    for children in (0, 0, 0, 20):
        if children and not hasattr(os, "fork"):
            continue
        done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, str(children)],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_threads_with_different_backends_at_once() -> None:
    kinds = [
        ("serial", {}),
        ("openmp", {"threads": 2}),
        ("openmp", {"threads": 3}),
        ("numpy", None),
    ]
    for backend, options in kinds:
        _engine(backend, **(options or {})) if options is not None else None
    expected = _gradient("serial")
    failures: list[str] = []

    def work(backend: str, options: dict[str, Any] | None) -> None:
        for _ in range(20):
            if options is None:
                x = np.linspace(0.1, 2, 50_000)
                got = adarray.grad(lambda a: np.sum(np.tanh(a) * np.exp(a)))(x)
            else:
                got = _gradient(backend, **options)
            if not np.allclose(got, expected, rtol=1e-13):
                failures.append(backend)

    threads = [threading.Thread(target=work, args=kind) for kind in kinds]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not any(t.is_alive() for t in threads)
    assert not failures


def test_info() -> None:
    for backend in ("serial", "openmp"):
        _engine(backend)
        info = load(backend).info()
        assert info["status"] == "available"
        assert info["simd"] in ("base", "avx2", "avx512")
        known = {"status", "compiler", "simd", "libmvec", "threads", "kernels", "blas"}
        assert set(info) == known
        assert all(isinstance(v, str) for v in info.values())
