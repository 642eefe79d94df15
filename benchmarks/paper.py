"""A whole run at the paper's scale: CPU seconds, what they went into, memory, and the same episodes on EpisodeRunner.

    python -m benchmarks.paper [--json] [--tasks spread tag foraging] [--agents mlp64 gru128] [--repeat N] [--no-study]

Each run is a process of its own (`fairtest run --preset paper`) with everything it does, on teams with random weights
unless `--policies` names trained ones. Of N runs (2) the least counts, for the first may have to compile kernels. The
floor is that of `benchmarks.run`, for the steps of this run. The last ratio compares with as many episodes on the
host's EpisodeRunner with upstream's environments, measured here for a few.

At the end a study of the paper's five methods on the shipped teams (or those of `--policies`), one seed, each step
charged: what each method takes, whether GMT is half of it, and how often a twin proved itself.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine import AGENTS, TASKS, per_cpu_second
from benchmarks.run import ROOT, as_a_user, beside, floor_of, judged, positive
from benchmarks.stock import KEYS
from epymarl_fairtest.host.build import build_training, configuration, load_host
from epymarl_fairtest.team.checkpoint import load_record, record_of_training, save_policy

BARS = {("spread", "mlp64"): 6, ("tag", "mlp64"): 15, ("tag", "gru128"): 30, ("foraging", "mlp64"): 10}  # CPU seconds

STUDIED = [ROOT / "policies" / name for name in ("mpe-iql", "mpe-qmix", "pp-iql", "pp-qmix", "lbf-iql", "lbf-qmix")]
METHODS = ("random", "gmt", "mastest", "starla", "fairtest")


def runner_speed(task: str, agent: str) -> float:
    """Episodes per CPU second of the host's EpisodeRunner on upstream's environment."""
    host = load_host()
    changes = {**AGENTS[agent], "epsilon_start": 0.05, "epsilon_finish": 0.05, "env_args": {"key": KEYS[task]}}
    training = build_training(host, configuration(host, "iql", TASKS[task], changes))
    training.runner.run(test_mode=False)
    return per_cpu_second(lambda: [training.runner.run(test_mode=False) for _ in range(20)], 20)


def random_team(folder: Path, task: str, agent: str) -> Path:
    """A saved team with random weights: what it does is irrelevant, what it costs is not."""
    host = load_host()
    torch.manual_seed(0)
    training = build_training(host, configuration(host, "iql", TASKS[task], AGENTS[agent]))
    args = training.args
    sizes = {"n_agents": args.n_agents, "n_actions": args.n_actions, "obs_size": args.unit_dim}
    record = record_of_training(args, time_limit=args.env_args["time_limit"], **sizes)
    save_policy(folder, record, training.mac.agent.state_dict())
    return folder


CHILD = "import resource, sys; from epymarl_fairtest.commands import main; code = main(sys.argv[1:]); " + (
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
)


def paper_run(policy: Path, times: int = 1) -> dict[str, Any]:
    """The summary of `times` the paper's rounds, with the memory and CPU time of its process."""
    return measured_run(policy, "--preset", "paper", "--budget", str(18_000 * times), "--set", f"rounds={3 * times}")


def measured_run(policy: Path, *more: str) -> dict[str, Any]:
    """The summary of a run in a process of its own, its memory and CPU time, and the size of its page."""
    with tempfile.TemporaryDirectory() as out:
        words = ["run", "--policy", str(policy), *more, "--out", f"{out}/run", "--json"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-W", "ignore", "-c", CHILD, *words]
        done = subprocess.run(command, capture_output=True, text=True, env=as_a_user())
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        pages = list(Path(out).glob("run/report/index.html"))
        page = sum(path.stat().st_size for path in pages) / 1024
    if done.returncode:
        raise SystemExit(done.stderr)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        **json.loads(done.stdout),
        "process_cpu_seconds": spent,
        "memory_mib": int(done.stderr.split()[-1]) / 1024,
        "page_kib": page,
    }


def study(policies: list[Path]) -> list[dict[str, Any]]:
    """By team: CPU seconds of each method in a study with one worker, and how often the team's twin proved itself."""
    with tempfile.TemporaryDirectory() as out:
        words = ["study", "rq1", "--seeds", "1", "--accounting", "strict", "--budget", "18000", "--jobs", "1"]
        words += ["--policies", *map(str, policies), "--methods", *METHODS, "--out", out]
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", CHILD, *words], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr)
        rows = []
        for policy in policies:
            runs = Path(out, "runs", policy.name)
            summaries = {method: json.loads((runs / method / "0/summary.json").read_text()) for method in METHODS}
            seconds = {method: summary["cpu_seconds"] for method, summary in summaries.items()}
            proofs = sum("proof" in summary["ledger"] for summary in summaries.values())
            rows.append({"study of": policy.name, "cpu_seconds": seconds, "proofs": proofs})
    return rows


def show_study(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"{'a study of':<10}{''.join(f'{method:>10}' for method in METHODS)}   CPU s, GMT's share, the twin's proofs"
    ]
    every = {method: sum(row["cpu_seconds"][method] for row in rows) for method in METHODS}
    everything = {"study of": "all", "cpu_seconds": every, "proofs": sum(row["proofs"] for row in rows)}
    for row in [*rows, everything]:
        seconds = row["cpu_seconds"]
        share = seconds["gmt"] / sum(seconds.values())
        shown = "".join(f"{seconds[method]:>10.1f}" for method in METHODS)
        lines.append(f"{row['study of']:<10}{shown}   {share:.0%}, {row['proofs']}")
    lines[-1] += f" (bars: GMT at most half: {'met' if share <= 0.5 else 'missed'}; one proof for each team)"
    return "\n".join(lines)


def cases(given: argparse.Namespace, folder: Path) -> list[tuple[str, str, Path]]:
    if given.policies:
        records = [(policy, load_record(policy)) for policy in given.policies]
        names = {"epymarl_fairtest:mpe-spread-v0": "spread", "epymarl_fairtest:mpe-tag-v0": "tag"}
        return [
            (names.get(record.key, "foraging"), "gru128" if record.use_rnn else "mlp64", policy)
            for policy, record in records
        ]
    pairs = [(task, agent) for task in given.tasks for agent in given.agents]
    return [(task, agent, random_team(folder / f"{task}-{agent}", task, agent)) for task, agent in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON row per run")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--policies", nargs="+", type=Path, help="trained teams instead of random weights")
    parser.add_argument("--repeat", type=positive, default=2, help="runs of each kind; the least counts")
    parser.add_argument("--no-study", action="store_true", help="whole runs only")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for task, agent, policy in cases(given, Path(folder)):
            row = measured(task, agent, policy, given.repeat)
            print(json.dumps(row) if given.json else show(row), flush=True)
    if not given.no_study:
        rows = study(given.policies or STUDIED)
        print("\n".join(map(json.dumps, rows)) if given.json else show_study(rows), flush=True)


def measured(task: str, agent: str, policy: Path, repeat: int) -> dict[str, Any]:
    summary = min((paper_run(policy) for _ in range(repeat)), key=lambda run: run["process_cpu_seconds"])
    episodes, seconds = summary["executed_episodes"], summary["process_cpu_seconds"]
    return {
        "task": task,
        "agent": agent,
        "episodes": episodes,
        "failures": summary["failures"],
        "cpu_seconds": seconds,
        "unexplained": seconds - summary["phases"].get("explaining", 0),
        **floor_of(policy, summary["executed_steps"]),
        "memory_mib": summary["memory_mib"],
        "ratio": episodes / runner_speed(task, agent) / seconds,
        "phases": summary["phases"],
    }


def show(row: dict[str, Any]) -> str:
    parts = sorted(row["phases"].items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts if seconds >= 0.05)
    rest = row["cpu_seconds"] - sum(row["phases"].values())
    bar = judged(row["cpu_seconds"], BARS.get((row["task"], row["agent"])))
    return (
        f"{row['task']:<10}{row['agent']:<8}{row['cpu_seconds']:>6.1f} CPU s{bar},"
        f" {beside(row['cpu_seconds'], row)};"
        f" {row['unexplained']:.1f} without the explanation;"
        f" {row['memory_mib']:.0f} MiB, {row['episodes']} episodes, EpisodeRunner {row['ratio']:.0f}x\n"
        f"{'':<10}imports and page {rest:.2f}, {shown}"
    )


if __name__ == "__main__":
    main()
