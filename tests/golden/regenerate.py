"""The golden runs: a fixed team, fixed settings, and the summaries they must give.

The first is the paper's search, the second the default one, with scouted candidates and screened mutants.
A change of the method changes a summary: look at the difference, and if it is meant, pin it again with

    python tests/golden/regenerate.py

from the root of the repository. The team (random weights) stays as it is; `--team` makes it anew.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import epymarl_fairtest  # noqa: F401  (registers the environments)
from epymarl_fairtest.campaign.run import run, versions
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.checkpoint import PolicyRecord, expected_shapes, save_policy
from epymarl_fairtest.team.saved import saved_team

HERE = Path(__file__).resolve().parent
SUMMARY = HERE / "summary.json"
SETTINGS = {
    "budget": 400,
    "accounting": "strict",
    "rounds": 2,
    "generations": 2,
    "theta": 0.8,
    "predictor_episodes": 80,
    "replay": 1000,
}
RUNS: dict[str, dict[str, Any]] = {
    # explaining in real environments takes far longer than the search
    "summary": {"candidates": "random", "screen": 1, "engine": "lockstep", "explain": 0},
    # looks at thousands of starts, each a reset of the real environment otherwise
    # 20 are explained, for one takes five times the usual work
    "scouted": {"engine": "twin", "explain": 105},
}
SEED = 11


def make_team() -> None:
    record = PolicyRecord(
        algorithm="iql",
        key="epymarl_fairtest:mpe-spread-v0",
        time_limit=10,
        n_agents=3,
        n_actions=5,
        obs_size=18,
        hidden_dim=8,
        use_rnn=True,
        obs_last_action=True,
        obs_agent_id=True,
    )
    generator = torch.Generator().manual_seed(20)
    weights = {
        name: torch.randn(shape, generator=generator) for name, shape in expected_shapes(record, separate=False).items()
    }
    save_policy(HERE / "team", record, weights)


def golden_run(name: str, out: Path) -> dict[str, Any]:
    """The summary of one of RUNS without what depends on the machine."""
    subject, settings = saved_team(HERE / "team", "env"), configure(SETTINGS | RUNS[name])
    summary = run(subject, settings, RunFolder(out), seed=SEED, command="golden", warn=lambda _: None)
    return {name: value for name, value in summary.items() if name not in ("wall_seconds", "cpu_seconds", "phases")}


if __name__ == "__main__":
    if "--team" in sys.argv:
        make_team()
    with tempfile.TemporaryDirectory() as folder:
        pinned = {"versions": versions()} | {name: golden_run(name, Path(folder) / name) for name in RUNS}
    SUMMARY.write_text(json.dumps(pinned, indent=2) + "\n")
    print(f"{SUMMARY.name}: {', '.join(str(pinned[name]['failures']) for name in RUNS)} failures pinned")
