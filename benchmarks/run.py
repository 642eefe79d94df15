"""The default run as a user starts it, with imports and page: CPU seconds, what they went into, and the floor.

    python -m benchmarks.run [--policies policies/mpe-qmix ...] [--warm-only] [--repeat N] [--json]

Each run is a fresh process (`fairtest run --policy ...`, nothing else set, budget 1,000): without the explanation, with
it, and without it on a cold compilation cache. The floor is measured beside them, in a process of its own: importing
the libraries that such a run cannot do without, and the matrix products of the steps that it executed. Seconds move
with the machine and with what else runs on it, ratios to the floor less. The least of N repetitions counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BARS = {"warm": 5, "warm, explained": 7, "cold": 10}  # CPU seconds, of a team in spread
TEAMS = [ROOT / "policies" / name for name in ("mpe-qmix", "pp-qmix", "lbf-qmix")]
RUN = """
import builtins, importlib, json, sys, time
spent, depth = 0.0, 0
def timed(load):
    def loading(*args, **kwargs):
        global spent, depth
        if depth:
            return load(*args, **kwargs)
        depth, began = 1, time.process_time()
        try:
            return load(*args, **kwargs)
        finally:
            depth, spent = 0, spent + time.process_time() - began
    return loading
builtins.__import__, importlib.import_module = timed(builtins.__import__), timed(importlib.import_module)
from epymarl_fairtest.commands import main
code = main(sys.argv[2:])
json.dump({"imports": spent, "total": time.process_time()}, open(sys.argv[1], "w"))
sys.exit(code)
"""
FLOOR = """
import json, sys, time
import numpy, numba, sklearn.ensemble, PIL.Image
imports = began = time.process_time()
import torch
with_torch = imports + time.process_time() - began
from pathlib import Path
from epymarl_fairtest.team.checkpoint import load_policy, load_record
from epymarl_fairtest.team.contract import CHUNK
policy, steps = Path(sys.argv[2]), int(sys.argv[3])
weights, record = torch.load(policy / "agent.th", weights_only=True), load_record(policy)
sizes = {name: getattr(record, name) for name in ("obs_size", "n_agents", "n_actions")}
needed = load_policy(policy, record, **sizes).needs_torch
torch.set_num_threads(1)
layers = [(torch.randn(CHUNK * record.n_agents, w.shape[1]), w) for w in weights.values() if w.dim() == 2]
with torch.inference_mode():
    began = time.process_time()
    for _ in range(-(-steps // CHUNK)):
        for rows, weight in layers:
            torch.nn.functional.linear(rows, weight)
products = time.process_time() - began
told = {"floor": (with_torch if needed else imports) + products, "floor_with_torch": with_torch + products}
json.dump(told, open(sys.argv[1], "w"))
"""


def as_a_user() -> dict[str, str]:
    """Python keeps the bytecode of our modules, whatever is set where this is measured."""
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}


def child(code: str, words: list[str], **changes: str) -> dict[str, Any]:
    """What a fresh process wrote down about itself."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.json"
        command = [sys.executable, "-W", "ignore", "-c", code, str(told), *words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**as_a_user(), **changes})
        if done.returncode:
            raise SystemExit(done.stderr)
        content: dict[str, Any] = json.loads(told.read_text())
    return content


def default_run(policy: Path, *, explain: bool, cold: bool) -> dict[str, Any]:
    """CPU seconds of one run: in all, its imports, its page, and the phases of the summary."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", "--policy", str(policy), "--seed", "0", "--out", f"{folder}/run"]
        words += [] if explain else ["--set", "explain=0"]
        told = child(RUN, words, **({"NUMBA_CACHE_DIR": f"{folder}/cache"} if cold else {}))
        summary = json.loads((Path(folder) / "run" / "summary.json").read_text())
    case = ("cold" if cold else "warm") + (", explained" if explain else "")
    return {**told, "policy": policy.name, "case": case, "search": summary["cpu_seconds"], "phases": summary["phases"],
            "steps": summary["executed_steps"]}  # fmt: skip


def measured(policy: Path, cases: list[tuple[bool, bool]], repeat: int) -> list[dict[str, Any]]:
    default_run(policy, explain=True, cold=False)  # whatever is not compiled yet
    rows = []
    for explain, cold in cases:
        runs = [default_run(policy, explain=explain, cold=cold) for _ in range(repeat)]
        rows.append(min(runs, key=lambda run: run["total"]))
    floor = floor_of(policy, rows[0]["steps"], repeat)
    return [{**row, **floor, "ratio": row["total"] / floor["floor"]} for row in rows]


def floor_of(policy: Path, steps: int, repeat: int = 1) -> dict[str, float]:
    """CPU seconds of the floor of so many steps, and of one with torch."""
    floors = [child(FLOOR, [str(policy), str(steps)]) for _ in range(repeat)]
    return {name: min(floor[name] for floor in floors) for name in floors[0]}


def beside(seconds: float, row: dict[str, Any]) -> str:
    """How often the floor of this row that is."""
    with_torch = row["floor_with_torch"]
    other = f" ({seconds / with_torch:.1f} of {with_torch:.2f}, with torch)" if with_torch > row["floor"] else ""
    return f"{seconds / row['floor']:.1f} times the floor of {row['floor']:.2f}{other}"


def show(row: dict[str, Any]) -> str:
    parts = sorted(row["phases"].items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts if seconds >= 0.05)
    rest = row["total"] - row["search"]
    bar = BARS[row["case"]] if row["policy"].startswith("mpe") else None
    return (
        f"{row['policy']:<10}{row['case']:<16}{row['total']:>6.1f} CPU s{judged(row['total'], bar)},"
        f" {beside(row['total'], row)}; all imports {row['imports']:.2f}\n"
        f"{'':<10}before the search and page {rest:.2f}, {shown}"
    )


def judged(seconds: float, bar: float | None) -> str:
    return "" if bar is None else f" (bar {bar}: {'met' if seconds <= bar else 'missed'})"


def positive(text: str) -> int:
    """A number of an option: argparse tells which, and what it may be."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="+", type=Path, default=TEAMS)
    parser.add_argument("--warm-only", action="store_true", help="no run on a cold compilation cache")
    parser.add_argument("--repeat", type=positive, default=1, help="runs of each kind; the least counts")
    parser.add_argument("--json", action="store_true", help="one JSON row per run")
    given = parser.parse_args()
    cases = [(False, False), (True, False)] + ([] if given.warm_only else [(False, True)])
    for policy in given.policies:
        for row in measured(policy.resolve(), cases, given.repeat):
            print(json.dumps(row) if given.json else show(row), flush=True)


if __name__ == "__main__":
    main()
