"""Text made from traced values: harmless when shown, but parsing it would lose the derivative."""

from __future__ import annotations

import dis
import functools
import io
import re
import sys
import types
from collections.abc import Iterator
from typing import NoReturn

from adarray.base.errors import TraceError
from adarray.base.redirecting import unredirected
from adarray.base.scope import client_of, package_of
from adarray.base.types import Function
from adarray.core.caught import Shown
from adarray.core.refusals import leaves_graph

# What is given text prints or keeps it, and computes nothing of it.
_OUTLETS = frozenset({"logging", "warnings", "traceback", "tqdm", "rich", "loguru"})
_PASSED = frozenset({"adarray", "adarray_native", "adarray_backends", "numpy"})
_DROPS = frozenset({"POP_TOP", "RAISE_VARARGS"})
_USES = frozenset({
    "COMPARE_OP", "CONTAINS_OP", "IS_OP", "LIST_APPEND", "SET_ADD", "MAP_ADD", "YIELD_VALUE",
})  # fmt: skip
# Functions and methods that show text.
_SHOWING = frozenset({
    "print", "pprint", "write", "echo", "secho", "log", "debug", "info", "warn", "warning",
    "error", "critical", "exception", "fail", "skip",
})  # fmt: skip
# Those of regular expressions, which read the characters of text that stands for other text.
_MATCHING = frozenset({
    "search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "scanner",
})  # fmt: skip
# Methods that read what was written into memory.
_READING = frozenset({"getvalue", "read", "readline", "readlines", "seek"})
_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX"})
_ENDS = ("STORE", "RETURN", "POP_JUMP")
# Parts of a format: flags, width, precision and type.
_FIELD = re.compile(r"%(?:\(\w*\))?[-+ #0]*(?:\*|\d+)?(?:\.(\*|\d+))?[hlL]?([a-zA-Z%])")
_SPEC = re.compile(r"(?:.?[<>=^])?[-+ ]?z?#?0?\d*[_,]?(?:\.(\d+))?([eEfFgG%]?)")
_ROUNDED = 8  # digits up to which a number in text is rounded, and not itself


class TracedText(Shown, str):
    """Text that shows a traced value, and refuses to be a number again.

    Its characters, which C code reads, are not a number; it equals the text that it stands for.
    """

    def __new__(cls, text: str, x: object, shown: str = "traced({})") -> TracedText:
        """Make it, of an ADArray or arguments with one."""
        traced_text = super().__new__(cls, shown.format(text))
        traced_text.of, traced_text.text = x, text
        traced_text._tell()
        return traced_text

    text: str

    def __eq__(self, other: object) -> bool:
        return bool(self.text == _opened(other))

    def __ne__(self, other: object) -> bool:
        return bool(self.text != _opened(other))

    def __hash__(self) -> int:
        return hash(self.text)

    def __len__(self) -> int:
        return len(self.text)

    def __iter__(self) -> Iterator[str]:
        return (TracedText(c, self.of) for c in self.text)

    def __radd__(self, other: str) -> TracedText:
        return TracedText(other + self.text, self.of)

    def _refuse(self) -> NoReturn:
        fix = "compute with the array, not with its text"
        raise leaves_graph("text read as a number", fix, self.of)

    __float__ = __int__ = __complex__ = _refuse

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def _opened(x: object) -> object:
    """Return `x` with the text that traced text stands for in its place."""
    return x.text if type(x) is TracedText else x


def _of_text(name: str) -> Function:
    """Return the method `name` of text, for the text that it stands for."""
    method: Function = getattr(str, name)

    def call(self: TracedText, *args: object, **kwargs: object) -> object:
        def closed(r: object) -> object:
            if type(r) is list or type(r) is tuple:
                return type(r)(map(closed, r))
            return TracedText(r, self.of) if type(r) is str else r

        return closed(method(self.text, *map(_opened, args), **kwargs))

    call.__name__ = name
    return call


for _name in (
    "capitalize", "casefold", "center", "count", "endswith", "expandtabs", "find", "index",
    "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric",
    "isprintable", "isspace", "istitle", "isupper", "ljust", "lower", "lstrip", "partition",
    "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit",
    "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "translate",
    "upper", "zfill", "__add__", "__contains__", "__ge__", "__getitem__", "__gt__", "__le__",
    "__lt__", "__mul__",
):  # fmt: skip
    setattr(TracedText, _name, _of_text(_name))


def text_is_kept(x: object) -> TraceError:
    """Return the error for text that a traced value becomes part of, and that is not shown."""
    return leaves_graph("text", "print or log it in the statement that makes it", x)


def as_text(text: str, x: object, formatted: bool = False) -> str:
    """Return the text that shows a traced value `x`.

    Parameters
    ----------
    text : str
    x : ADArray, or arguments with one
    formatted : bool
        Whether the text becomes part of another one, unless it is all of an f-string.

    Raises
    ------
    TraceError
        If it becomes part of text that is kept: nothing could be told of that.
    """
    frame = _user()
    if frame is None:
        return text
    code = unredirected(frame.f_code)
    fate, joined = _fate(code, frame.f_lasti)
    if fate == "shown" and _is_kept_there(frame):
        raise text_is_kept(x)
    if fate in ("shown", "compared"):
        return text
    op = dis.opname[code.co_code[frame.f_lasti]]
    if fate == "used" and (
        joined or op == "BINARY_OP" or (formatted and not op.startswith("FORMAT"))
    ):
        raise text_is_kept(x)
    if fate == "used" and _matches(code, frame):
        raise leaves_graph("text", "compute with the array, not with its text", x)
    return TracedText(text, x)


def _matches(code: types.CodeType, frame: types.FrameType) -> bool:
    """Whether code, or a function that it names, matches patterns against text."""
    named = [frame.f_locals.get(n, frame.f_globals.get(n)) for n in code.co_names]
    codes = [getattr(f, "__code__", None) for f in named]
    return any(
        isinstance(c, types.CodeType) and not _MATCHING.isdisjoint(c.co_names)
        for c in (code, *codes)
    )


def _user() -> types.FrameType | None:
    """Return the innermost frame of code that is the user's; None if text goes to an outlet."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        package = package_of(frame.f_globals.get("__name__"))
        if package in _OUTLETS:
            return None
        if package not in _PASSED:
            return frame
        frame = frame.f_back
    return None


def is_shown_only() -> bool:
    """Whether text that is made now is printed, logged or raised, as far as the code says."""
    return _fate_now() in ("shown", "given")


def is_shown() -> bool:
    """Whether text that is made now is certainly printed, logged or raised."""
    return _fate_now() == "shown"


def is_compared() -> bool:
    """Whether text that is made now is compared with another, which has no derivative."""
    return _fate_now() == "compared"


def _fate_now() -> str:
    frame = _user()
    if frame is None:
        return "shown"
    fate = _fate(unredirected(frame.f_code), frame.f_lasti)[0]
    return "used" if fate == "shown" and _is_kept_there(frame) else fate


def _is_kept_there(frame: types.FrameType) -> bool:
    """Whether text that a frame shows goes to what code can read it from again."""
    names = set(_before(unredirected(frame.f_code), frame.f_lasti))
    variables = [s[n] for s in (frame.f_locals, frame.f_globals) for n in names if n in s]
    attributes = [
        space[n]
        for x in variables
        if isinstance(space := getattr(x, "__dict__", None), dict)
        for n in names
        if n in space
    ]
    for x in (sys.stdout, *variables, *attributes):
        if type(x) is io.StringIO:
            if _reads_again(frame):
                return True
        elif type(getattr(type(x), "write", None)) is types.FunctionType:
            space = getattr(type(x), "write").__globals__  # noqa: B009
            if client_of(space):  # a method that does what it wants
                return True
    return False


def _reads_again(frame: types.FrameType | None) -> bool:
    """Whether a frame, or one that called it in the transformed function, reads such text."""
    while frame is not None and package_of(frame.f_globals.get("__name__")) not in _PASSED:
        if not _READING.isdisjoint(frame.f_code.co_names):
            return True
        frame = frame.f_back
    return False


@functools.lru_cache(maxsize=4096)
def _fate(code: types.CodeType, at: int, names: bool = True) -> tuple[str, bool]:
    """Return what becomes of text made at an instruction, and whether other text is joined to it.

    It is "shown" by a function that shows text or by an error, "compared", "given" to one
    function whose result is dropped, also by a local name that is used for nothing else, or "used".
    """
    calls, joined = 0, False
    read = set(_before(code, at))
    for instruction in dis.get_instructions(code):
        if instruction.offset <= at:
            continue
        name = instruction.opname
        if name in _DROPS:
            if name == "RAISE_VARARGS" or read & _SHOWING:
                return "shown", joined
            return "given" if calls <= 1 else "used", joined
        if name in ("COMPARE_OP", "CONTAINS_OP") and not calls:
            return "compared", joined
        if name.startswith("STORE_FAST") and names and not calls:
            stored = instruction.argval
            stored = stored[0] if isinstance(stored, tuple) else stored
            return "given" if _only_shown(code, stored) else "used", joined
        if name in _USES or name.startswith(_ENDS):
            return "used", joined
        calls += name in _CALLS or name == "BINARY_SUBSCR"
        joined = joined or (not calls and name in ("BUILD_STRING", "BINARY_OP"))
    return "shown", joined


def _only_shown(code: types.CodeType, local: str) -> bool:
    """Whether all that code does with a local name is to show it, or to give it to a function."""
    for instruction in dis.get_instructions(code):
        names = instruction.argval
        if (
            "LOAD" in instruction.opname
            and local in (names if isinstance(names, tuple) else (names,))
            and _fate(code, instruction.offset, False)[0] not in ("shown", "given")
        ):
            return False
    return local not in code.co_cellvars


def _before(code: types.CodeType, at: int) -> Iterator[str]:
    """Give the names and texts that the statement has read before an instruction."""
    names: list[str] = []
    for instruction in dis.get_instructions(code):
        if instruction.offset > at:
            break
        name = instruction.opname
        if name in _DROPS or name.startswith(_ENDS):
            names = []
        if "FAST_LOAD_FAST" in name:  # two instructions in one, of Python 3.13
            names += instruction.argval[name.startswith("STORE") :]
        elif name.startswith("LOAD") and isinstance(instruction.argval, str):
            names.append(instruction.argval)
    return iter(names)


def rounds(spec: str) -> bool:
    """Whether numbers in a format such as ``.3f`` are rounded: text of them moves in jumps."""
    match = _SPEC.fullmatch(spec)
    if match is None:
        return False
    digits, kind = match.groups()
    return bool(kind) if digits is None else int(digits) <= _ROUNDED


def is_rounded(frame: types.FrameType) -> bool:
    """Whether the numbers in the text ``format % x``, which a frame makes now, are rounded."""
    read = list(_before(unredirected(frame.f_code), frame.f_lasti))
    named = [frame.f_locals.get(t, frame.f_globals.get(t)) for t in read]
    texts = [t for t in (*read, *named) if isinstance(t, str) and "%" in t]
    fields = [f for t in texts for f in _FIELD.findall(t) if f[1] != "%"]
    return bool(fields) and all(
        kind in "sdiuxXoc" or (kind in "eEfFgG" and (not p or (p != "*" and int(p) <= _ROUNDED)))
        for p, kind in fields
    )
