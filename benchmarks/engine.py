"""Episodes per CPU second: the host's EpisodeRunner and FairTest's engines on the same team.

python -m benchmarks.engine [--json] [--tasks spread tag foraging] [--agents mlp64 gru128]
python -m benchmarks.engine --engine twin  # only the twin beside its matrix products
python -m benchmarks.engine --engine lockstep --workers 1,2 [--keys rware:rware-tiny-2ag-v2]

`runner` is the host's EpisodeRunner on the environments as upstream publishes them, which is what it costs without
FairTest; `runner_lean` the same on FairTest's own environments, which play by the same rules in half the time. A step
of the twin is shown beside its floor, the matrix products that must give the host's bits. Without --json the
environment steps per second of benchmarks.simulators follow. With --engine lockstep only that engine is
measured, in several processes: in episodes per second of the clock, and in CPU seconds. The clock tells of the cores
that happened to be idle; what the busiest process and this one together take in CPU seconds is what idle cores would
leave.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import linear

from benchmarks import simulators
from benchmarks.stock import KEYS
from epymarl_fairtest.core.episodes import Tests, random_tests
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.engine.selection import real_engine
from epymarl_fairtest.engine.twin import Twin
from epymarl_fairtest.host.build import Training, build_training, configuration, load_host
from epymarl_fairtest.host.controller import ControllerPolicy
from epymarl_fairtest.host.tap import host_world
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.team.agent import Agent
from epymarl_fairtest.team.checkpoint import rebuild, record_of_training
from epymarl_fairtest.team.contract import CHUNK
from epymarl_fairtest.team.weights import array_of
from epymarl_fairtest.testing import random_team

TASKS = {"spread": "fairtest_mpe", "tag": "fairtest_pp", "foraging": "fairtest_lbf"}
GRU = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
BARS = {"mlp64": 1.5, "gru128": 1.15}  # a step of the twin to its matrix products
AGENTS = {"mlp64": {"hidden_dim": 64, "use_rnn": False}, "gru128": {"hidden_dim": 128, "use_rnn": True}}


def per_cpu_second(work: Any, episodes: int, repeats: int = 3) -> float:
    """The best of a few: other tenants of the machine only ever slow it down."""
    best = 0.0
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = max(best, episodes / (time.process_time() - start))
    return best


def engines_of(training: Training, epsilon: float = 0.05) -> tuple[Lockstep, Twin]:
    """FairTest's engines on the host's own wrappers and controller, and on the twin with the same weights."""
    host, args = training.host, training.args

    def make() -> Any:
        return host.environments[args.env](**host.environment_arguments(args))

    wrapper = make()
    task, obs_size = task_for(wrapper._env), int(wrapper.get_obs_size())
    how = ActionRule("epsilon_greedy", epsilon, 1.0, np.array(wrapper.get_avail_actions(), bool))
    size = {"limit": int(wrapper.episode_limit), "state_size": task.state_size}
    live = ControllerPolicy(training.mac, training.runner.new_batch, args, obs_size)
    lockstep = Lockstep(lambda: host_world(make(), task, host, "env"), live, how, **size)
    sizes = {"n_agents": args.n_agents, "n_actions": args.n_actions, "obs_size": obs_size}
    rebuilt = rebuild(training.mac.agent.state_dict(), record_of_training(args, time_limit=size["limit"], **sizes))
    kernel = task.twin(wrapper._env, "env")
    assert kernel is not None
    return lockstep, Twin(kernel, rebuilt, how, **size)


def measure(task: str, agent: str) -> dict[str, Any]:
    host = load_host()
    torch.manual_seed(0)
    # An untrained team: what it does is irrelevant, what it costs is not.
    changes = {**AGENTS[agent], "epsilon_start": 0.05, "epsilon_finish": 0.05}
    training = build_training(host, configuration(host, "iql", TASKS[task], changes))
    lockstep, twin = engines_of(training)
    stock = build_training(host, configuration(host, "iql", TASKS[task], {**changes, "env_args": {"key": KEYS[task]}}))
    generator = np.random.default_rng(0)

    def tests(count: int) -> Tests:
        return random_tests(count, lockstep.state_size, generator)

    for warm in (training, stock):
        warm.runner.run(test_mode=False)
    lockstep.execute(tests(256))  # makes the worlds
    twin.execute(tests(256))  # compiles, or reads what was compiled before
    results = {
        "runner": per_cpu_second(lambda: [stock.runner.run(test_mode=False) for _ in range(20)], 20),
        "runner_lean": per_cpu_second(lambda: [training.runner.run(test_mode=False) for _ in range(20)], 20),
        "lockstep": per_cpu_second(lambda: lockstep.execute(tests(256)), 256),
        "twin": per_cpu_second(lambda: twin.execute(tests(4096)), 4096),
    }
    ratios = {f"{name}_ratio": results[name] / results["runner"] for name in ("lockstep", "twin")}
    ratios["twin_ratio_lean"] = results["twin"] / results["runner_lean"]
    floor = beside_products(training, twin, tests(4096))
    return {"task": task, "agent": agent, "host": host.name, **results, **ratios, **floor}


def measure_twin(task: str, agent: str) -> dict[str, Any]:
    """The twin beside its matrix products, and nothing else."""
    host = load_host()
    torch.manual_seed(0)
    training = build_training(host, configuration(host, "iql", TASKS[task], AGENTS[agent]))
    _, twin = engines_of(training)
    tests = random_tests(4096, twin.state_size, np.random.default_rng(0))
    return {"task": task, "agent": agent, "host": host.name, **beside_products(training, twin, tests)}


def products(training: Training, worlds: int) -> dict[str, Callable[[], Any]]:
    """What the host's agent computes for this many worlds: its matrix products, each with its bias, and all of its
    layers, which are the same with what is done to every number between them (the activations and the GRU's gates); and
    these layers as the twin has them computed (`ours`)."""
    weights = {name: weight.detach() for name, weight in training.mac.agent.state_dict().items()}
    rows = worlds * training.args.n_agents
    pairs = [(weight, weights[name.replace("weight", "bias")]) for name, weight in weights.items() if "weight" in name]
    inputs = [torch.randn(rows, weight.shape[1]) for weight, _ in pairs]
    actions, size = weights["fc2.weight"].shape
    hidden, recurrent = torch.randn(rows, size), "rnn.weight_hh" in weights
    agent = Agent({name: array_of(weight) for name, weight in weights.items()}, recurrent, rows)
    arrays = inputs[0].numpy(), hidden.clone().numpy()
    calls = agent.calls(*arrays, agent.between(), np.zeros((rows, actions), np.float32))

    def bare() -> None:
        for given, (weight, bias) in zip(inputs, pairs, strict=True):
            linear(given, weight, bias)

    def layers() -> None:
        x = linear(inputs[0], weights["fc1.weight"], weights["fc1.bias"]).relu_()
        if recurrent:
            h = torch.gru_cell(x, hidden, *(weights[f"rnn.{kind}"] for kind in GRU))
        else:
            h = linear(x, weights["rnn.weight"], weights["rnn.bias"]).relu_()
        linear(h, weights["fc2.weight"], weights["fc2.bias"])

    def ours() -> None:
        for call in calls:
            call()

    return {"products": bare, "layers": layers, "ours": ours}


def beside_products(training: Training, twin: Twin, tests: Tests, rounds: int = 9) -> dict[str, float]:
    """µs of CPU time for a step of 256 worlds on the twin, with all that belongs to it: resets, the record, Python; and
    for the products of such a step. In turns, the least of each: other tenants of the machine only ever slow it."""
    alone = tests.take(slice(0, CHUNK))
    steps = {"step": twin.execute(tests).executed_steps(), "step_alone": twin.execute(alone).executed_steps()}
    works: dict[str, tuple[Callable[[], Any], float]] = {
        **{name: (work, 1.0) for name, work in products(training, CHUNK).items()},
        "step": (lambda: twin.execute(tests), steps["step"] / CHUNK),
        "step_alone": (lambda: twin.execute(alone), steps["step_alone"] / CHUNK),
    }
    least = dict.fromkeys(works, np.inf)
    with torch.inference_mode():
        for _ in range(rounds):
            for name, (work, count) in works.items():
                times = {"step": 1, "step_alone": 8}.get(name, 100)
                start = time.process_time()
                for _ in range(times):
                    work()
                least[name] = min(least[name], (time.process_time() - start) * 1e6 / count / times)
    ratios = {f"{name}_ratio": least[name] / least["products"] for name in ("layers", "ours", "step", "step_alone")}
    ratios["step_layers_ratio"] = least["step"] / least["layers"]
    return {**{f"{name}_us": found for name, found in least.items()}, **ratios}


def show_floor(rows: Sequence[dict[str, Any]]) -> None:
    print(
        f"\nµs of CPU time for a step of {CHUNK} worlds, and how often the time of its matrix products: those that the"
    )
    print("host's agent computes for so many worlds, with biases; its layers are these with activations and gates, and")
    print(
        "ours the same layers as the twin has them computed; the bar is for a step beside the products, and how often"
    )
    print("it takes the time of the host's layers is in brackets")
    columns = f"{'task':<10}{'agent':<8}{'products':>9}{'layers':>8}{'':>7}{'ours':>8}{'':>7}{'step':>8}"
    print(f"{columns}{'':>15}   bar{'batch of 256 alone':>21}")
    for row in rows:
        bar = BARS[row["agent"]]
        told = "met" if row["step_ratio"] <= bar else "missed"
        print(
            f"{row['task']:<10}{row['agent']:<8}{row['products_us']:>9.0f}{row['layers_us']:>8.0f}"
            f"{row['layers_ratio']:>6.2f}x{row['ours_us']:>8.0f}{row['ours_ratio']:>6.2f}x{row['step_us']:>8.0f}{row['step_ratio']:>6.2f}x"
            f" ({row['step_layers_ratio']:.2f}x){bar:>6}x {told:<6}"
            f"{row['step_alone_us']:>8.0f}{row['step_alone_ratio']:>6.2f}x"
        )


def scaling(keys: Sequence[str], workers: Sequence[int], episodes: int) -> None:
    """By number of processes: episodes per second of the clock and CPU seconds; an untrained team, 50 steps each."""
    for key in keys:
        team, clock, longest = random_team(key, time_limit=50), [], []
        tests = random_tests(episodes, team.task.state_size, np.random.default_rng(0))
        for number in workers:
            engine = real_engine(team, configure({"workers": number, "engine": "lockstep"}))
            engine.execute(tests)  # makes the worlds
            began, own, theirs = time.perf_counter(), time.process_time(), of_children()
            engine.execute(tests)
            clock.append(episodes / (time.perf_counter() - began))
            spent = [after - theirs.get(process, 0.0) for process, after in of_children().items()]
            longest.append(time.process_time() - own + max(spent, default=0.0))
            del engine
        print(
            f"{key:<45} {episodes} episodes"
            + "".join(
                f"; workers {n}: {c:.1f}/s, {s:.2f} CPU s" for n, c, s in zip(workers, clock, longest, strict=True)
            )
            + f"; {clock[-1] / clock[0]:.2f}x by the clock, {longest[0] / longest[-1]:.2f}x if the cores were idle",
            flush=True,
        )


def of_children() -> dict[int, float]:
    """CPU seconds so far of each process that this one has started and that still runs."""
    seconds = {}
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        seconds[int(child.pid or 0)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON row per case")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS))
    parser.add_argument("--engine", choices=["all", "lockstep", "twin"], default="all")
    parser.add_argument("--workers", default="1,2", help="numbers of processes of the lock-step engine")
    parser.add_argument("--keys", nargs="+", default=list(KEYS.values()), help="gymnasium ids for --engine lockstep")
    parser.add_argument("--episodes", type=int, default=512, help="for --engine lockstep")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if args.engine == "lockstep":
        return scaling(args.keys, [int(number) for number in args.workers.split(",")], args.episodes)
    if args.engine == "twin":
        rows = [measure_twin(task, agent) for task in args.tasks for agent in args.agents]
        return print("\n".join(map(json.dumps, rows))) if args.json else show_floor(rows)
    if not args.json:
        print("episodes per CPU second, how often EpisodeRunner's, and (in brackets) EpisodeRunner on FairTest's own")
        print("environments and how often that")
        print(f"{'task':<10}{'agent':<8}{'EpisodeRunner':>22}{'lockstep':>11}{'':>8}{'twin':>10}")
    rows = []
    for task in args.tasks:
        for agent in args.agents:
            rows.append(measure(task, agent))
            print(json.dumps(rows[-1]) if args.json else show(rows[-1]), flush=True)
    if not args.json:
        show_floor(rows)
        print()
        simulators.table()


def show(row: dict[str, Any]) -> str:
    return (
        f"{row['task']:<10}{row['agent']:<8}{row['runner']:>14.1f} ({row['runner_lean']:5.1f}){row['lockstep']:>11.1f}"
        f"{row['lockstep_ratio']:>7.1f}x{row['twin']:>10.0f}{row['twin_ratio']:>7.0f}x"
        f" ({row['twin_ratio_lean']:.0f}x)   {row['host']}"
    )


if __name__ == "__main__":
    main()
