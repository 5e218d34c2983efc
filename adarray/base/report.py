"""Reports in sections, shown as text and as HTML."""

from __future__ import annotations

from html import escape
from typing import NamedTuple


class ReportTable(NamedTuple):
    """Lines of cells under heads; cells of the columns in `numbers` stand to the right."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()


class Code(NamedTuple):
    """Text that is shown as it is."""

    text: str


class Drawing(NamedTuple):
    """What only HTML can show, such as a picture."""

    html: str


class Section(NamedTuple):
    """A headline, what stands under it (a str is a paragraph), and sections inside.

    `folded` ones are closed in HTML until they are clicked on.
    """

    title: str
    parts: tuple[str | ReportTable | Code | Drawing, ...] = ()
    inside: tuple[Section, ...] = ()
    folded: bool = False


def size_text(n: float) -> str:
    """Return a number of bytes as text: ``"8.00 MB"``; k, M and G count in thousands."""
    return count_text(n, "B")


def count_text(n: float, unit: str = "") -> str:
    """Return a count as text: ``"2.50 Mflop"``."""
    for letter, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= scale:
            return f"{n / scale:.2f} {letter}{unit}"
    return f"{n:.0f} {unit}".rstrip()


def time_text(seconds: float) -> str:
    """Return a time as text: ``"1.250 ms"``."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def table_lines(table: ReportTable) -> list[str]:
    """Return a table as lines of text: heads, a rule, rows."""
    cells = [table.heads, *table.rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.heads))]
    lines = [
        "  ".join(
            text.rjust(w) if i in table.numbers else text.ljust(w)
            for i, (text, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    if not any(table.heads):
        return lines[1:]
    lines.insert(1, "-" * max(map(len, lines)))
    return lines


def shortened(part: ReportTable | Code, limit: int | None) -> tuple[ReportTable | Code, str]:
    """Return the first `limit` lines or rows of a part, and what says how many are missing."""
    if isinstance(part, ReportTable):
        missing = 0 if limit is None else len(part.rows) - limit
        shown: ReportTable | Code = part if missing <= 0 else part._replace(rows=part.rows[:limit])
    else:
        lines = part.text.splitlines()
        missing = 0 if limit is None else len(lines) - limit
        shown = part if missing <= 0 else Code("\n".join(lines[:limit]))
    return shown, f"... and {missing} more" if missing > 0 else ""


def as_text(section: Section, limit: int | None = None) -> str:
    """Return a section as text, each level two spaces further in.

    Parameters
    ----------
    section : Section
    limit : int, optional
        Lines of a table or a listing at most.
    """
    lines: list[str] = []
    # With a stack of its own: a tree of many guards is deep.
    stack: list[tuple[Section, int]] = [(section, 0)]
    while stack:
        s, level = stack.pop()
        pad = "  " * level
        if lines and level <= 1:
            lines.append("")
        lines.append(pad + s.title)
        for part in s.parts:
            more = ""
            if isinstance(part, ReportTable | Code):
                part, more = shortened(part, limit)
            if isinstance(part, ReportTable):
                shown = table_lines(part)
            elif isinstance(part, Drawing):
                continue
            else:
                shown = (part.text if isinstance(part, Code) else part).splitlines()
            lines += [f"{pad}  {line}".rstrip() for line in shown]
            if more:
                lines.append(f"{pad}  {more}")
        stack += [(inner, level + 1) for inner in reversed(s.inside)]
    return "\n".join(lines)


def as_html(section: Section, limit: int | None = None) -> str:
    """Return a section as HTML that stands alone in a notebook's cell; `limit` as above."""
    return f'<div class="adarray-report">{"".join(_html(section, 3, limit))}</div>'


def _html(s: Section, level: int, limit: int | None) -> list[str]:
    head = escape(s.title)
    out = [f"<details><summary>{head}</summary>" if s.folded else f"<h{level}>{head}</h{level}>"]
    for part in s.parts:
        more = ""
        if isinstance(part, ReportTable | Code):
            part, more = shortened(part, limit)
        if isinstance(part, ReportTable):
            out += table_html(part)
        elif isinstance(part, Code):
            out.append(f"<pre>{escape(part.text)}</pre>")
        elif isinstance(part, Drawing):
            out.append(part.html)
        else:
            out.append(f"<p>{escape(part)}</p>")
        if more:
            out.append(f"<p>{more}</p>")
    for inner in s.inside:  # as deep as a report is nested: a few levels
        out += _html(inner, min(level + 1, 6), limit)
    if s.folded:
        out.append("</details>")
    return out


def table_html(table: ReportTable) -> list[str]:
    """Return a table as pieces of HTML."""
    heads = "".join(f"<th>{escape(h)}</th>" for h in table.heads) if any(table.heads) else ""
    out = [f"<table><thead><tr>{heads}</tr></thead><tbody>" if heads else "<table><tbody>"]
    for row in table.rows:
        out.append("<tr>")
        for i, text in enumerate(row):
            side = "right" if i in table.numbers else "left"
            out.append(f'<td style="text-align:{side}">{escape(text)}</td>')
        out.append("</tr>")
    out.append("</tbody></table>")
    return out
