"""Time adarray's transforms beside JAX's, and print a table.

    python -m asv_bench.transforms --peer-python /path/to/peers/bin/python
    python -m asv_bench.transforms --peer-python ... --tasks sparse --rounds 3
    python -m asv_bench.transforms --peer-python ... --docs docs/transforms

The other environment needs ``jax``, ``asdex`` and ``scipy``. Both sides are compiled, every engine
runs in a process of its own, they are asked in turn, and all results are compared first.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from asv_bench.fleet import Fleet, Result, progress, runnable
from asv_bench.peers import machine
from asv_bench.tables import ratio_text, table, time_text
from asv_bench.transforms.workloads import TASKS

OURS, PEER, SCANNED = "jit-openmp", "jax", "jax, lax.scan"
WORKER = Path(__file__).with_name("worker.py")


def main(argv: list[str] | None = None) -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(prog="python -m asv_bench.transforms", description=__doc__)
    parser.add_argument("--peer-python", type=runnable, default=sys.executable)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tasks", nargs="+", default=[""], help="parts of names of tasks")
    parser.add_argument("--docs", type=Path, help="folder to write the table and figures to")
    options = parser.parse_args(argv)
    names = [n for n in TASKS if any(part in n for part in options.tasks)]
    measured = measure(names, options)
    tables, lines = report(measured)
    print("\n\n".join([table(*t) for t in tables.values()] + lines))
    if options.docs:
        options.docs.mkdir(parents=True, exist_ok=True)
        (options.docs / "peers.json").write_text(json.dumps(measured, indent=1) + "\n")
        for name, (_, head, rows) in tables.items():
            # A dash alone would be a list in reStructuredText.
            cells = ([c if c != "-" else "" for c in row] for row in [head, *rows])
            text = "".join("\t".join(row) + "\n" for row in cells)
            (options.docs / f"{name}.tsv").write_text(text)
    return 0


def measure(names: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Return the measurements, as plain numbers."""
    engines = [OURS, PEER, SCANNED]
    with Fleet(
        engines, options.peer_python, options.threads, options.rounds, progress, worker=WORKER
    ) as fleet:
        measured: dict[str, Any] = {
            "machine": machine(options.threads),
            "engines": {n: m.absent or m.version for n, m in fleet.members.items()},
            "tasks": {},
        }
        for name in names:
            results = fleet.race("transform", name, [OURS, PEER])
            if TASKS[name].scanned is not None:
                results |= fleet.race("text", name, [SCANNED])
            measured["tasks"][name] = {n: figures(r) for n, r in results.items()}
    return measured


def figures(r: Result) -> dict[str, Any]:
    """Return the figures of one engine: seconds, or the error."""
    if r.error:
        return {"error": r.error}
    facts = {k: v for k, v in r.prepared.items() if k != "digest"}
    return {"median": r.median, "times": [row[0] for row in r.times], **facts}


def best_peer(row: dict[str, Any], what: str = "median") -> float | None:
    """Return the least time of the peers."""
    times = [row[n][what] for n in (PEER, SCANNED) if what in row.get(n, {})]
    return min(times) if times else None


def ratio_of(row: dict[str, Any], what: str = "median") -> float | None:
    """Return how many times as long the best peer takes."""
    peer, ours = best_peer(row, what), row[OURS].get(what)
    return peer / ours if peer is not None and ours else None


Table = tuple[str, list[str], list[list[str]]]


def report(measured: dict[str, Any]) -> tuple[dict[str, Table], list[str]]:
    """Return the tables, with title, head and rows, and lines below them."""
    rows, sparse = [], []
    for name, row in measured["tasks"].items():
        ours, peer = row[OURS], best_peer(row)
        cells = [
            name,
            ours.get("error") or time_text(ours["median"]),
            time_text(peer) if peer is not None else row[PEER].get("error", "-"),
            ratio_text(ratio_of(row)),
        ]
        if not name.startswith("sparse"):
            f = measured["tasks"].get(f"{name.partition(':')[0]}: f")
            per_f = [
                ratio_text(ours["median"] / f[OURS]["median"]) if f and "median" in ours else "-",
                ratio_text(peer / best_peer(f)) if f and peer is not None else "-",
            ]
            rows.append([*cells, *per_f])
            continue
        cells += [
            time_text(ours["prepared_s"]) if "prepared_s" in ours else "-",
            time_text(row[PEER]["prepared_s"]) if "prepared_s" in row[PEER] else "-",
            ratio_text(ratio_of(row, "prepared_s")),
            f"{ours.get('colors', '-')} / {row[PEER].get('colors', '-')}",
        ]
        sparse.append(cells)
    tables: dict[str, Table] = {}
    lines = []
    if rows:
        head = ["", "adarray", "JAX", "JAX / adarray", "adarray / f", "JAX / f"]
        tables["dense"] = "Transforms", head, rows
    if sparse:
        head = ["", "adarray", "JAX", "JAX / adarray", "prepare", "asdex", "asdex / adarray",
                "colours"]  # fmt: skip
        tables["sparse"] = "Sparse matrices", head, sparse
    for title, chosen in (
        ("all but f", [n for n in measured["tasks"] if not n.endswith(": f")]),
        ("vmap, hvp, jacobian", [n for n in measured["tasks"] if any(
            part in n for part in ("vmap", "hvp", "jacobian"))]),
    ):  # fmt: skip
        ratios = [r for n in chosen if (r := ratio_of(measured["tasks"][n])) is not None]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            lines.append(f"Geometric mean of JAX / adarray, {title}: {mean:.2f} of {len(ratios)}")
    return tables, lines


if __name__ == "__main__":
    raise SystemExit(main())
