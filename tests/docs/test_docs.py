"""The examples in docstrings, in docs/ and in README.md do what they show."""

from __future__ import annotations

import contextvars
import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import adarray
from adarray.numpy._lift import UFunc
from adarray.testing import check_grads

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.rst"))
MODULES = ["adarray"] + [
    m.name for m in pkgutil.walk_packages(adarray.__path__, "adarray.") if "__main__" not in m.name
]
# The documentation shortens error messages with "...".
FLAGS = doctest.ELLIPSIS
# Names in public modules whose docstrings must show an example.
WITH_EXAMPLES = ("grad", "value_and_grad", "vjp", "jvp", "jacobian", "hessian", "array", "no_grad",
                 "use", "backends")  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in doctest.DocTestFinder(exclude_empty=False).find(module, name):
        # A function of NumPy that `adarray.numpy` shows has NumPy's examples.
        shown = getattr(module, test.name.removeprefix(f"{name}.").partition(".")[0], None)
        if not hasattr(shown, "__wrapped__") and not isinstance(shown, UFunc):
            runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_public_function_has_example(name: str) -> None:
    assert ">>> " in (getattr(adarray, name).__doc__ or "")


def test_pages_are_found() -> None:
    names = {p.name for p in PAGES}
    assert {"index.rst", "quickstart.rst", "tracing.rst", "backends.rst"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_page_examples(page: Path) -> None:
    # In a context of its own: no backend is chosen there, whatever ran before.
    result = contextvars.Context().run(
        doctest.testfile, str(page), module_relative=False, optionflags=FLAGS
    )
    assert result.failed == 0


def test_titles_of_the_errors_page_are_messages_that_it_raises() -> None:
    text = (ROOT / "docs" / "errors.rst").read_text()
    titles = re.findall(r"^(.+)\n~{5,}$", text, re.MULTILINE)
    raised = "\n".join(e.exc_msg or "" for e in doctest.DocTestParser().get_examples(text))
    sources = "\n".join(p.read_text() for p in sorted((ROOT / "adarray").rglob("*.py")))
    assert len(titles) > 15
    for title in titles:
        for part in re.split(r"; | \.\.\. ", title):
            is_raised = part in raised or part.removeprefix("stays eager: ") in sources
            assert is_raised, f"{title!r}: no message says {part!r}"


def _blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), re.DOTALL)


def test_readme_example() -> None:
    names: dict[str, object] = {}
    exec(_blocks(ROOT / "README.md", "python")[0], names)
    gradient, w = names["gradient"], names["w"]
    assert isinstance(gradient, dict)
    assert isinstance(w, dict)
    assert {k: g.shape for k, g in gradient.items()} == {k: a.shape for k, a in w.items()}
    assert (gradient["hidden"][:, 0] == 0).all()  # this unit is overwritten
    x = names["x"]
    check_grads(names["loss"], (w, x, x[:, 0] > x[:, 1]), order=1, argnums=0)  # type: ignore[index]


def test_readme_commands_are_one_line_each() -> None:
    commands = _blocks(ROOT / "README.md", "sh")
    assert len(commands) == 2
    assert all(c.count("\n") == 1 for c in commands)
    assert "-m adarray demo" in commands[0]
    assert "pytest" in commands[1]
