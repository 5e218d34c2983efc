"""Scripts of asv_bench where something is missing, or an option is wrong: a line, and a status."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))  # last: an installed adarray stays the one in use
pytest.importorskip("asv_bench.gpu")
from asv_bench import peers  # noqa: E402
from asv_bench.gpu import __main__ as comparison  # noqa: E402
from asv_bench.gpu import contractions, fifteen, kernels, worker  # noqa: E402
from asv_bench.gpu.needed import needed  # noqa: E402
from asv_bench.jit import __main__ as jit_comparison  # noqa: E402

MEASURING = {"fifteen": fifteen, "contractions": contractions, "kernels": kernels}


@pytest.mark.parametrize("name", MEASURING)
def test_scripts_of_the_gpu_say_what_is_missing(name: str, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)  # an import fails
    with pytest.raises(SystemExit) as caught:
        MEASURING[name].main([])
    text = str(caught.value)
    assert text.startswith(f"asv_bench.gpu.{name}: cupy cannot be imported (")
    assert text.endswith("; pip install 'adarray[cuda]', on a machine with an NVIDIA GPU")


def test_a_machine_without_a_gpu(monkeypatch: Any) -> None:
    import adarray
    from adarray.errors import BackendError

    def use(name: str) -> None:
        raise BackendError(f"backend {name!r}: there is no GPU")

    monkeypatch.setattr(adarray, "use", use)
    with pytest.raises(SystemExit) as caught:
        needed("some.script")
    expected = "some.script: there is no GPU to measure: backend 'cuda': there is no GPU"
    assert str(caught.value) == expected


WRONG: dict[str, tuple[Callable[..., Any], list[str], str]] = {
    "size": (fifteen.main, ["--size", "0"], "--size, --runs and --repeats are at least 1"),
    "sizes": (contractions.main, ["--sizes", "-3"], "--sizes are at least 1"),
    "precision": (contractions.main, ["--precisions", "int4"], "invalid choice: 'int4'"),
    "peer": (comparison.main, ["--peer-python", "/no/python"], "'/no/python' is no program"),
    "load": (comparison.main, ["--load", "/no/file.json"], "there is no file '/no/file.json'"),
    "peer of jit": (jit_comparison.main, ["--peer-python", "/no/python"], "is no program"),
    "load of jit": (jit_comparison.main, ["--load", "/no/file.json"], "there is no file"),
    "peer of peers": (peers.main, ["--peer-python", "/no/python"], "is no program"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options(name: str, capsys: Any) -> None:
    main, arguments, message = WRONG[name]
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_a_worker_needs_the_name_of_an_engine() -> None:
    with pytest.raises(SystemExit, match=r"asv_bench\.gpu\.worker: name an engine"):
        worker.make_worker([])
