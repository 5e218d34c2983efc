"""From CUDA C to text that a parser of C reads: macros, and the words that C has not got.

Every token keeps the line that it came from, so that messages can name it. What cannot be
written as C is refused here, with its line.
"""

from __future__ import annotations

import ast
import re
from itertools import pairwise, product
from typing import NamedTuple

from adarray.errors import KernelError

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\f\v]+)|(?P<line>\n)|(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|(?P<text>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')'
    r"|(?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[uUlLfF]*)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|::|\#\#|.)",
    re.DOTALL,
)


class Token(NamedTuple):
    """A word of the source."""

    kind: str
    text: str
    line: int
    glued: bool = False  # to the one before


class Macro(NamedTuple):
    """What ``#define`` says: `parameters` is None for a macro without brackets."""

    parameters: tuple[str, ...] | None
    body: tuple[Token, ...]


def tokens(source: str) -> list[Token]:
    """Return the tokens of a source, without comments; ends of lines are tokens."""
    source = re.sub(r"\\[ \t]*\n", "\x00", source)  # continued lines
    out: list[Token] = []
    line, glued = 1, False
    for m in _TOKEN.finditer(source.replace("\x00", " \x01")):
        text = m.group()
        if text == "\x01":
            line += 1
            continue
        kind = m.lastgroup or "sign"
        if kind == "line" or kind not in ("space", "comment"):
            out.append(Token(kind, text, line, glued))
        glued = kind not in ("space", "comment", "line")
        line += text.count("\n") + (text.count("\x01") if kind == "comment" else 0)
    return out


class Preprocessor:
    """Carries out directives and expands macros.

    Parameters
    ----------
    defines : dict
        Texts of macros by name, as an option ``-DNAME=TEXT`` gives them.
    """

    def __init__(self, defines: dict[str, str] | None = None) -> None:
        self.macros: dict[str, Macro] = {}
        for name, text in {"M_PI": "3.14159265358979323846", **(defines or {})}.items():
            self.macros[name] = Macro(None, tuple(tokens(text)))

    def run(self, source: str) -> list[Token]:
        """Return the tokens that are left of a source."""
        out: list[Token] = []
        pending: list[Token] = []
        # For each open conditional: whether its text is taken, and whether one was taken before.
        conditionals: list[tuple[bool, bool]] = []
        line: list[Token] = []
        for token in [*tokens(source), Token("line", "\n", 0)]:
            if token.kind != "line":
                line.append(token)
                continue
            if line and line[0].text == "#":
                out += self.expand(pending)
                pending = []
                self._directive(line, conditionals)
            elif all(here for here, _ in conditionals):
                pending += line
            line = []
        if conditionals:
            raise KernelError("an #if has no #endif", 0)
        return out + self.expand(pending)

    def _directive(self, line: list[Token], conditionals: list[tuple[bool, bool]]) -> None:
        name = line[1].text if len(line) > 1 else ""
        rest, number = line[2:], line[0].line
        live = all(here for here, _ in conditionals)
        if name in ("if", "ifdef", "ifndef"):
            holds = live and self._holds(name, rest, number)
            conditionals.append((holds, holds or not live))
        elif name in ("elif", "else", "endif"):
            if not conditionals:
                raise KernelError(f"an #{name} has no #if", number)
            _, before = conditionals.pop()
            if name != "endif":
                holds = not before and (name == "else" or self._holds("if", rest, number))
                conditionals.append((holds, before or holds))
        elif live and name == "define":
            self._define(rest, number)
        elif live and name == "undef":
            self.macros.pop(rest[0].text, None)
        elif live and name == "error":
            raise KernelError("#error " + " ".join(t.text for t in rest), number)
        elif live and name not in ("include", "pragma", "line", "warning", ""):
            raise KernelError(f"the directive #{name} is not known", number)

    def _define(self, rest: list[Token], line: int) -> None:
        if not rest:
            raise KernelError("#define names no macro", line)
        name, body = rest[0].text, rest[1:]
        parameters = None
        if body and body[0].text == "(" and body[0].glued:
            end = next((i for i, t in enumerate(body) if t.text == ")"), len(body))
            parameters = tuple(t.text for t in body[1:end] if t.text != ",")
            body = body[end + 1 :]
        if any(t.text in ("#", "##") for t in body):
            raise KernelError(f"the macro {name} uses # or ##, which is not supported", line)
        self.macros[name] = Macro(parameters, tuple(body))

    def _holds(self, kind: str, rest: list[Token], line: int) -> bool:
        if kind != "if":
            return (rest[0].text in self.macros) == (kind == "ifdef")
        words: list[Token] = []
        i = 0
        while i < len(rest):
            t = rest[i]
            if t.text == "defined":
                bracket = rest[i + 1].text == "("
                name = rest[i + 2 if bracket else i + 1].text
                words.append(Token("number", str(int(name in self.macros)), line))
                i += 4 if bracket else 2
                continue
            words.append(t)
            i += 1
        signs = {"&&": " and ", "||": " or ", "!": " not ", "/": "//"}
        text = "".join(
            "0" if t.kind == "name" else signs.get(t.text, t.text.rstrip("uUlL"))
            for t in self.expand(words)
        )
        try:
            return bool(constant(text))
        except (SyntaxError, ValueError, ZeroDivisionError):
            raise KernelError(f"#if {text!r} cannot be evaluated", line) from None

    def expand(self, source: list[Token], hidden: frozenset[str] = frozenset()) -> list[Token]:
        """Return tokens with macros replaced, but for those in `hidden`."""
        out: list[Token] = []
        i = 0
        while i < len(source):
            t = source[i]
            macro = self.macros.get(t.text) if t.kind == "name" and t.text not in hidden else None
            i += 1
            if macro is None:
                out.append(t)
                continue
            body = [b._replace(line=t.line) for b in macro.body]
            if macro.parameters is not None:
                if i >= len(source) or source[i].text != "(":
                    out.append(t)
                    continue
                args, i = arguments(source, i)
                if len(args) != len(macro.parameters) and not (args == [[]]):
                    raise KernelError(f"the macro {t.text} has {len(args)} arguments", t.line)
                by = dict(
                    zip(macro.parameters, (self.expand(a, hidden) for a in args), strict=False)
                )
                body = [x for b in body for x in by.get(b.text, [b])]
            out += self.expand(body, hidden | {t.text})
        return out


def arguments(source: list[Token], at: int) -> tuple[list[list[Token]], int]:
    """Return what stands between brackets at `at`, by commas, and what position follows."""
    depth, args, line = 0, [[]], source[at].line  # type: tuple[int, list[list[Token]], int]
    for i in range(at, len(source)):
        text = source[i].text
        depth += (text in "([{") - (text in ")]}")
        if depth == 0:
            return args, i + 1
        if text == "," and depth == 1:
            args.append([])
        elif i != at:
            args[-1].append(source[i])
    raise KernelError("a bracket is not closed", line)


_PLAIN = (ast.Expression, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Constant)


def constant(text: str) -> int:
    """Return the value of an expression of integers in Python's notation."""
    tree = ast.parse(text.strip(), mode="eval")
    for node in ast.walk(tree):
        if not isinstance(node, (*_PLAIN, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)):
            raise ValueError(text)
    return int(eval(compile(tree, "#if", "eval"), {"__builtins__": {}}))


# -- words of CUDA ------------------------------------------------------------------------------

_WORDS = {
    "__global__": "_Noreturn", "__device__": "inline", "__shared__": "_Thread_local",
    "__constant__": "const", "constexpr": "const", "bool": "_Bool", "true": "((_Bool)1)",
    "false": "((_Bool)0)", "nullptr": "0",
}  # fmt: skip
_DROPPED = frozenset(
    (
        "__host__",
        "__forceinline__",
        "__noinline__",
        "__inline__",
        "inline",
        "static",
        "__restrict__",
        "__restrict",
        "restrict",
        "volatile",
        "typename",
    )
)
_WITH_BRACKETS = frozenset(("__launch_bounds__", "__align__", "__attribute__", "alignas"))
_CASTS = frozenset(("static_cast", "reinterpret_cast", "const_cast"))
_REFUSED = {
    "class": "classes", "asm": "assembler", "__asm__": "assembler", "goto": "goto",
    "namespace": "namespaces", "using": "using", "new": "new", "delete": "delete",
    "try": "exceptions", "throw": "exceptions", "virtual": "virtual functions",
    "cooperative_groups": "cooperative groups", "texture": "textures", "surface": "surfaces",
    "cudaTextureObject_t": "textures", "half": "half precision", "__half": "half precision",
    "half2": "half precision", "__nv_bfloat16": "half precision", "union": "unions",
    "curandState": "curand", "curandState_t": "curand",
}  # fmt: skip
_OPERATORS = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "+=": "iadd", "-=": "isubtract",
    "*=": "imultiply", "/=": "idivide",
}  # fmt: skip
SCALARS = {
    "uint": "unsigned int", "uchar": "unsigned char", "ushort": "unsigned short",
    "ulong": "unsigned long", "int8_t": "signed char", "int16_t": "short", "int32_t": "int",
    "int64_t": "long", "uint8_t": "unsigned char", "uint16_t": "unsigned short",
    "uint32_t": "unsigned int", "uint64_t": "unsigned long", "size_t": "unsigned long",
    "ssize_t": "long", "ptrdiff_t": "long",
}  # fmt: skip
_BASIC = frozenset(("float", "double", "int", "unsigned", "long", "short", "char", "_Bool"))
VECTORS = {
    f"{name}{n}": (name, n) for name in ("float", "double", "int", "uint") for n in (2, 3, 4)
}


def prelude() -> str:
    """Return declarations of the types that CUDA C brings."""
    lines = [f"typedef {c} {name};" for name, c in SCALARS.items()]
    for name, (base, n) in VECTORS.items():
        fields = " ".join(f"{base} {f};" for f in "xyzw"[:n])
        lines.append(f"typedef struct {name} {{ {fields} }} {name};")
    lines.append("typedef struct __auto { int x; } auto_t;")
    return " ".join(lines)


class KernelTemplate(NamedTuple):
    """A function template.

    Attributes
    ----------
    parameters : tuple of str
    types : tuple of bool
        Which parameters are types.
    usual : tuple of list of Token
        What parameters are where nothing is said; empty for none.
    body : list of Token
    """

    parameters: tuple[str, ...]
    types: tuple[bool, ...]
    usual: tuple[list[Token], ...]
    body: list[Token]

    @property
    def device(self) -> bool:
        """Whether kernels call it."""
        return all(t.text != "__global__" for t in self.body)


class Rewriter:
    """Writes CUDA's words as C's."""

    def __init__(self, source: list[Token]) -> None:
        self.tokens = source
        self.out: list[Token] = []
        self.defines: tuple[str | None, str | None] = (None, None)  # a name, and what it becomes
        self.templates: dict[str, KernelTemplate] = {}
        self.wanted: dict[tuple[str, tuple[str, ...]], None] = {}  # calls with types or numbers
        self.types = {*_BASIC, *SCALARS, *VECTORS, "void"}
        self.structs: list[str] = []
        # Words that are not C's may be names of variables.
        self.variables = {b.text for a, b in pairwise(source) if a.text in _BASIC}
        for a, b in pairwise(source):
            if a.text == "struct" and b.kind == "name":
                self.types.add(b.text)
                self.structs.append(b.text)
        for i, t in enumerate(source):
            if t.text == "typedef":
                end = next((k for k in range(i, len(source)) if source[k].text == ";"), i)
                depth_end = end
                if any(x.text == "{" for x in source[i:end]):
                    _, after = arguments(
                        source, next(k for k in range(i, end) if source[k].text == "{")
                    )
                    depth_end = next(
                        (k for k in range(after, len(source)) if source[k].text == ";"), i
                    )
                self.types.add(source[depth_end - 1].text)

    def run(self) -> list[Token]:
        """Return the tokens of C; templates are set aside."""
        i = 0
        while i < len(self.tokens):
            i = self._one(i)
        return self.out

    def _emit(self, text: str, line: int) -> None:
        self.out += [t._replace(line=line) for t in tokens(text)]

    def _one(self, i: int) -> int:
        """Rewrite what stands at position `i`; return the next one."""
        source = self.tokens
        t = source[i]
        after = source[i + 1].text if i + 1 < len(source) else ""
        if t.kind == "text" and self.out and self.out[-1].text == "extern":
            self.out.pop()  # extern "C"
            if after == "{":
                inner, end = _braces(source, i + 1)
                self.tokens = [*source[: i + 1], *inner, *source[end:]]
            return i + 1
        if t.text in _REFUSED and t.text not in self.variables:
            raise KernelError(f"{_REFUSED[t.text]} ({t.text}) cannot be differentiated", t.line)
        if t.text in _DROPPED:
            return i + 1
        if t.text in _WITH_BRACKETS:
            return arguments(source, i + 1)[1]
        if t.text == "template":
            return self._template(i)
        if t.text == "std" and after == "::":
            return i + 2
        if t.text == "::":
            raise KernelError("names with :: are not supported", t.line)
        if t.text == "operator" and after in _OPERATORS:
            self._emit(f"operator_{_OPERATORS[after]}", t.line)
            return i + 2
        if t.text in _CASTS and after == "<":
            inner, end = _angles(source, i + 1)
            self._emit("(", t.line)
            self.out += Rewriter._types(inner)
            self._emit(")", t.line)
            return end
        if t.text == self.defines[0] and after == "(":
            self.out.append(t._replace(text=self.defines[1] or t.text))
            self.defines = (None, None)  # behind it are calls
            return i + 1
        if t.text in self.templates and after in ("<", "("):
            inner, end = _angles(source, i + 1) if after == "<" else ([], i + 1)
            given = tuple(" ".join(x.text for x in a) for a in _by_commas(inner))
            self.wanted[t.text, given] = None
            self.out.append(t._replace(text=instance(t.text, given)))
            return end
        if t.text == "auto":
            self._emit("auto_t", t.line)
            return i + 1
        if t.text == "&" and self._is_reference(i):
            self._emit("* _Atomic", t.line)
            return i + 1
        if t.text in self.types and after == "(" and self._is_call(i):
            self._emit(f"({t.text})", t.line)
            return i + 1
        if after == "{" and t.text == "return":
            self._emit("return (auto_t)", t.line)
            return i + 1
        if after == "{" and t.kind == "name" and self._begins(i):
            self._emit(f"({t.text})" if t.text in self.types else f"{t.text} =", t.line)
            return i + 1
        if t.kind == "name" and t.text in _WORDS:
            self._emit(_WORDS[t.text], t.line)
            return i + 1
        self.out.append(t)
        return i + 1

    @staticmethod
    def _types(inner: list[Token]) -> list[Token]:
        return [t._replace(text="_Bool") if t.text == "bool" else t for t in inner]

    def _is_reference(self, i: int) -> bool:
        """Whether ``&`` at a position makes a type a reference."""
        before, after = self.tokens[i - 1], self.tokens[i + 1]
        return (before.text in self.types or before.text == "const") and after.kind == "name"

    def _is_call(self, i: int) -> bool:
        """Whether the name of a type at a position is called as a function."""
        before = self.tokens[i - 1].text if i else ";"
        return before not in (
            "unsigned",
            "signed",
            "long",
            "short",
            "const",
            "sizeof",
            "struct",
        ) and (self.tokens[i + 2].text != "*")

    def again(
        self, template: KernelTemplate, by: dict[str, str], name: str | None = None
    ) -> list[Token]:
        """Return the function that a template is with given types and numbers, in C."""
        body = [
            x._replace(line=t.line)
            for t in template.body
            for x in (tokens(by[t.text]) if t.text in by else [t])
        ]
        again = Rewriter(body)
        again.types |= self.types
        again.templates, again.wanted = self.templates, self.wanted
        plain = next((n for n, t in self.templates.items() if t is template), None)
        again.defines = plain, name or plain
        return again.run()

    def called(self, words: list[Token]) -> list[Token]:
        """Return the functions that calls of templates stand for, in C.

        What a call does not say is taken from defaults; types become each of those in the source,
        and the call takes the function that fits best.
        """
        out: list[Token] = []
        usual = ["float", "double", "int", "unsigned int", "long"]
        seen = {t.text for t in words}
        usual += [t for t in sorted((*VECTORS, *self.structs)) if t in seen]
        done: set[tuple[str, tuple[str, ...]]] = set()
        while len(done) < len(self.wanted):
            name, given = next(w for w in self.wanted if w not in done)
            done.add((name, given))
            template = self.templates[name]
            choices: list[list[str]] = []
            for k, parameter in enumerate(template.parameters):
                if k < len(given):
                    choices.append([given[k] if template.types[k] else f"({given[k]})"])
                elif template.usual[k]:
                    choices.append([" ".join(x.text for x in template.usual[k])])
                elif template.types[k]:
                    choices.append(usual)
                else:
                    line = next(t.line for t in template.body)
                    raise KernelError(
                        f"the template {name!r} is called without its number {parameter!r}; "
                        f"write it, as in {name}<32>(x)", line,
                    )  # fmt: skip
            for values in product(*choices):
                by = dict(zip(template.parameters, values, strict=True))
                out += self.again(template, by, instance(name, given))
        return out

    def _begins(self, i: int) -> bool:
        """Whether braces behind a name hold a value: ``float2{x, y}``, or ``float2 v{x, y}``."""
        t, before = self.tokens[i], self.tokens[i - 1].text if i else ""
        if t.text in self.types:
            return before not in ("struct", "enum", "union", "class")
        return before in self.types and (i < 2 or self.tokens[i - 2].text not in ("struct", "enum"))

    def _template(self, i: int) -> int:
        """Set a function template aside; return the position behind it."""
        source, line = self.tokens, self.tokens[i].line
        inner, start = _angles(source, i + 1)
        parts = _by_commas(inner)
        equals = [next((k for k, t in enumerate(p) if t.text == "="), len(p)) for p in parts]
        names = [p[k - 1].text for p, k in zip(parts, equals, strict=True)]
        types = tuple(p[0].text in ("typename", "class") for p in parts)
        usual = tuple(p[k + 1 :] for p, k in zip(parts, equals, strict=True))
        end = start
        while end < len(source) and source[end].text not in ("{", ";"):
            if source[end].text in ("struct", "class"):
                raise KernelError("templates of structs are not supported", line)
            end += 1
        if end == len(source) or source[end].text == ";":
            return end + 1
        _, end = _braces(source, end)
        body = source[start:end]
        name = next(
            a.text for a, b in pairwise(body) if b.text == "(" and a.text != "__launch_bounds__"
        )
        self.templates[name] = KernelTemplate(tuple(names), types, usual, body)
        return end


def _by_commas(source: list[Token]) -> list[list[Token]]:
    """Return the parts of a template's list."""
    parts: list[list[Token]] = [[]] if source else []
    for t in source:
        if t.text == ",":
            parts.append([])
        else:
            parts[-1].append(t)
    return parts


def instance(name: str, given: tuple[str, ...]) -> str:
    """Return the name of the functions that a template stands for in a call."""
    return name + "".join("__" + re.sub(r"\W+", "_", g) for g in given)


def _braces(source: list[Token], at: int) -> tuple[list[Token], int]:
    depth = 0
    for i in range(at, len(source)):
        depth += (source[i].text == "{") - (source[i].text == "}")
        if depth == 0:
            return source[at + 1 : i], i + 1
    raise KernelError("a brace is not closed", source[at].line)


def _angles(source: list[Token], at: int) -> tuple[list[Token], int]:
    if source[at].text != "<":
        raise KernelError("a template has no list of parameters", source[at].line)
    for i in range(at, len(source)):
        if source[i].text == ">":
            return source[at + 1 : i], i + 1
    raise KernelError("a template's list is not closed", source[at].line)


class PreparedSource(NamedTuple):
    """A source that a parser of C reads."""

    text: str
    structs: tuple[str, ...]
    templates: dict[str, KernelTemplate]


def text_of(words: list[Token]) -> str:
    """Return tokens as text, each on its line."""
    parts, line = [], 1
    for t in words:
        if t.line < line:  # templates stand behind the rest
            parts.append(f'\n#line {t.line} "source"\n')
            line = t.line
        elif t.line > line:
            parts.append("\n" * (t.line - line))
            line = t.line
        parts.append(t.text)
    return " ".join(parts)


def prepared(
    source: str,
    defines: dict[str, str] | None = None,
    instantiate: tuple[str, dict[str, str]] | None = None,
) -> PreparedSource:
    """Return what a parser of C makes a tree of.

    `instantiate` names a function template and what its parameters are.
    """
    words = Preprocessor(defines).run(source)
    first = Rewriter(words)
    out = first.run()
    name = instantiate[0] if instantiate else None
    if instantiate and name in first.templates:
        out = out + first.again(first.templates[name], instantiate[1])
    out = out + first.called(words)
    forward = " ".join(f"typedef struct {s} {s};" for s in dict.fromkeys(first.structs))
    text = f'{prelude()} {forward}\n#line 1 "source"\n{text_of(out)}\n'
    return PreparedSource(text, tuple(first.structs), first.templates)
