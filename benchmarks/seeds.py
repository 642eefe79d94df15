"""Do the natural rates that runs print hold, and do runs agree about who comes off badly? The same run, many seeds.

    python -m benchmarks.seeds [--policy policies/pp-iql] [--seeds 10] [--executions 100000] [--set NAME=VALUE ...]

Each run is the command `fairtest run --policy DIR --seed S` with its default settings, without explanations and the
page, which come after everything that is compared here. The rate that the intervals must cover is that of the random
executions of one long count. Exit code 1 if more than one interval in ten does not cover it, or if two runs name
different agents as systematically worse off.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from epymarl_fairtest.commands import main as fairtest
from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.core.statistics import Rate, rate_of
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.saved import saved_team

ROOT = Path(__file__).resolve().parents[1]
AFTERWARDS = ["explain=0", "report=false"]
CHUNK = 5000
HEAD = 3  # lines above the table
COVERED = 0.9  # of the intervals, at least


def long_count(policy: Path, executions: int) -> Rate:
    """How often the team is unfair by itself, from starts that no run draws."""
    team = saved_team(policy, "env")
    engine, judge = make_engine(team, configure({}), print), Judge(INDICES["jfi"], team.task.theta)
    generator, unfair = np.random.default_rng(2026), 0
    for first in range(0, executions, CHUNK):
        tests = random_tests(min(CHUNK, executions - first), team.task.state_size, generator)
        unfair += int(judge(engine.execute(tests)).unfair.sum())
    return rate_of(unfair, executions)


def one_run(policy: Path, seed: int, changes: list[str]) -> tuple[str, dict[str, Any]]:
    """The first line of the table that the command prints, and its summary."""
    said = io.StringIO()
    given = [word for text in (*AFTERWARDS, *changes) for word in ("--set", text)]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said):
        out = Path(folder) / "run"
        with contextlib.redirect_stderr(io.StringIO()):
            code = fairtest(["run", "--policy", str(policy), "--seed", str(seed), "--out", str(out), *given])
        if code:
            raise RuntimeError(f"seed {seed} ended with exit code {code}")
        return said.getvalue().splitlines()[HEAD], json.loads((out / "summary.json").read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, default=ROOT / "policies" / "pp-iql")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--executions", type=int, default=100_000)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    whole = long_count(given.policy, given.executions)
    print(f"{given.executions:,} random executions: {whole}", flush=True)
    covered, named = 0, set()
    for seed in range(given.seeds):
        line, summary = one_run(given.policy, seed, given.set)
        rate, agent = summary["natural_rate"], summary["worst_off"]["agent"]
        inside = rate["low"] <= whole.estimate <= rate["high"]
        covered += inside
        named |= {agent} - {None}
        worse = "no agent is worse off" if agent is None else f"agent {agent} is worse off"
        print(f"seed {seed}: {' '.join(line.split())}{'' if inside else ' (does not cover it)'}; {worse}", flush=True)
    print(f"{covered} of {given.seeds} intervals cover the rate; agents named: {sorted(named) or 'none'}")
    return int(covered < COVERED * given.seeds or len(named) > 1)


if __name__ == "__main__":
    sys.exit(main())
