"""What the first run on a machine compiles: CPU seconds per kernel, on a cold cache, in a process per task.

    python -m benchmarks.compiling [--policies policies/mpe-qmix ...] [--top 12] [--explained]

A small default run (budget 200) reaches every kernel that a large one needs, with --explained those of the explanation,
too. A kernel's seconds are its own, without
those of the kernels that it calls; `numba's own` is what numba compiles of itself for them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEAMS = [ROOT / "policies" / name for name in ("mpe-qmix", "pp-qmix", "lbf-qmix")]
RUN = """
import json, sys, time
from numba.core import event
class Listener(event.Listener):
    spent, running = {}, []
    def on_start(self, event):
        self.running.append([time.process_time(), 0.0])
    def on_end(self, event):
        began, inside = self.running.pop()
        seconds = time.process_time() - began
        if self.running:
            self.running[-1][1] += seconds
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__}.{function.__name__}".removeprefix("epymarl_fairtest.")
        self.spent.setdefault(name, []).append(seconds - inside)
listener = Listener()
event.register("numba:compile", listener)
from epymarl_fairtest.commands import main
main(sys.argv[2:])
json.dump(listener.spent, open(sys.argv[1], "w"))
"""


def compiled(policy: Path, explained: bool) -> dict[str, list[float]]:
    """CPU seconds of each compilation, by kernel."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.json"
        words = ["run", "--policy", str(policy), "--budget", "200", "--seed", "0", "--out", f"{folder}/run"]
        words += ["--set", "report=false", *([] if explained else ["--set", "explain=0"])]
        environment = {**os.environ, "NUMBA_CACHE_DIR": f"{folder}/cache"}
        command = [sys.executable, "-W", "ignore", "-c", RUN, str(told), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=environment)
        spent: dict[str, list[float]] = json.loads(told.read_text())
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="+", type=Path, default=TEAMS)
    parser.add_argument("--top", type=int, default=12, help="kernels that are listed")
    parser.add_argument("--explained", action="store_true", help="with the explanation of failures")
    given = parser.parse_args()
    for policy in given.policies:
        spent = compiled(policy.resolve(), given.explained)
        own = {name: times for name, times in spent.items() if not name.startswith("numba.")}
        rest = [time for name, times in spent.items() if name not in own for time in times]
        total = sum(map(sum, spent.values()))
        print(f"{policy.name}: {total:.1f} CPU s, of which numba's own {sum(rest):.1f} ({len(rest)} functions)")
        for name, times in sorted(own.items(), key=lambda item: -sum(item[1]))[: given.top]:
            print(f"  {sum(times):6.2f}  {name}" + (f"  {len(times)} signatures" if len(times) > 1 else ""), flush=True)


if __name__ == "__main__":
    main()
