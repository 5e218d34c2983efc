"""Times, ratios and Markdown tables."""

from __future__ import annotations


def time_text(seconds: float) -> str:
    """Return a time with its unit, three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def ratio_text(value: float | None) -> str:
    """Return a ratio with three digits, a dash for none."""
    return "-" if value is None else f"{value:.3g}"


def table(title: str, head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table with aligned columns below a bold title."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]

    def line(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = [":" + "-" * (widths[0] - 1), *("-" * (w - 1) + ":" for w in widths[1:])]
    return "\n".join([f"**{title}**", "", line(head), line(rule), *map(line, rows)])
