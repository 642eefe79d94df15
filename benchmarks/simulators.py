"""Environment steps per CPU second of the twins' rules alone, beside JaxMARL, VMAS and EnvPool.

python -m benchmarks.simulators [--json] [--worlds 4096]

No policy, and no network for the prey: random actions, the same number of worlds side by side, one core, all after a
warm-up (compilation is not counted). Spread and tag stand beside those of JaxMARL and VMAS, foraging with two players
and two foods on an 8x8 field beside EnvPool's, whose warehouse stands alone: it has no twin. Others are measured where
they are installed: pip install "epymarl-fairtest[bench]" envpool.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Collection
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import gymnasium
import numpy as np
import torch

from epymarl_fairtest.tasks import task_for

STEPS, WORLDS = 25, 4096
KEYS: dict[str, tuple[str, dict[str, Any]]] = {
    "spread": ("epymarl_fairtest:mpe-spread-v0", {}),
    "tag": ("epymarl_fairtest:mpe-tag-v0", {"prey": "still"}),  # theirs have no prey that thinks either
    "foraging": ("lbforaging:Foraging-8x8-2p-2f-v3", {}),  # the size of EnvPool's
}
TASKS = ["spread", "tag", "foraging", "warehouse"]
VMAS = {"spread": ("simple_spread", {}), "tag": ("simple_tag", {"num_adversaries": 3, "num_good_agents": 1})}
JAXMARL = {"spread": "MPE_simple_spread_v3", "tag": "MPE_simple_tag_v3"}
ENVPOOL = {"foraging": "LevelBasedForaging-v0", "warehouse": "RobotWarehouse-v0"}


def ours(task: str, worlds: int) -> Callable[[], None]:
    key, settings = KEYS[task]
    env = gymnasium.make(key, disable_env_checker=True, **settings)
    known = task_for(env)
    kernel = known.twin(env, "env")
    assert kernel is not None
    size = env.observation_space[0].shape[0]  # type: ignore[index]
    states, running = np.zeros((worlds, known.state_size)), np.ones(worlds, bool)
    seen = np.zeros((worlds, known.n_agents, size), np.float32)
    rewards, over = np.zeros((worlds, known.n_agents)), np.zeros(worlds, bool)
    steps, seeds = np.zeros(worlds, np.int32), np.arange(worlds, dtype=np.int64)
    most = env.action_space[0].n  # type: ignore[index]
    actions = np.random.default_rng(0).integers(0, most, (STEPS, worlds, known.n_agents)).astype(np.int16)

    def play() -> None:
        kernel.reset(seeds, states)
        for step in range(STEPS):
            kernel.observe(states, running, seen)
            kernel.step(states, running, actions[step], rewards, over, steps)

    return play


def vmas(task: str, worlds: int) -> Callable[[], None]:
    from vmas import make_env

    name, settings = VMAS[task]
    env: Any = make_env(name, num_envs=worlds, device="cpu", continuous_actions=False, seed=0, **settings)
    drawn = torch.randint(0, 5, (STEPS, len(env.agents), worlds, 1), generator=torch.Generator().manual_seed(0))

    def play() -> None:
        env.reset()
        for step in range(STEPS):
            env.step(list(drawn[step]))

    return play


def jaxmarl(task: str, worlds: int) -> Callable[[], None]:
    import jax
    import jaxmarl as package

    env: Any = package.make(JAXMARL[task])
    names = env.agents
    drawn = jax.random.randint(jax.random.PRNGKey(1), (STEPS, len(names), worlds), 0, 5)

    @jax.jit
    def episode(keys: Any) -> Any:
        _, states = jax.vmap(env.reset)(keys)

        def turn(states: Any, actions: Any) -> Any:
            chosen = {name: actions[i] for i, name in enumerate(names)}
            seen, states, rewards, _, _ = jax.vmap(env.step_env)(keys, states, chosen)
            return states, (seen, rewards)

        return jax.lax.scan(turn, states, drawn)

    keys = jax.random.split(jax.random.PRNGKey(0), worlds)
    return lambda: jax.block_until_ready(episode(keys))


def envpool(task: str, worlds: int) -> Callable[[], None]:
    import envpool as package

    # Its interface for gymnasium spends nine tenths of the time on what pictures of each world may need.
    env: Any = package.make(ENVPOOL[task], env_type="dm", num_envs=worlds, num_threads=1)
    actions = env.action_spec()
    drawn = np.random.default_rng(0).integers(0, actions.maximum + 1, (STEPS, worlds, *actions.shape), np.int32)

    def play() -> None:
        env.reset()
        for step in range(STEPS):
            env.step(drawn[step])

    return play


PEERS: dict[str, tuple[Collection[str], Callable[[str, int], Callable[[], None]]]] = {
    "vmas": (VMAS, vmas),
    "jaxmarl": (JAXMARL, jaxmarl),
    "envpool": (ENVPOOL, envpool),
}


def steps_per_cpu_second(play: Callable[[], None], worlds: int, repeats: int = 5) -> float:
    play()
    best = 0.0
    for _ in range(repeats):
        start = time.process_time()
        play()
        best = max(best, worlds * STEPS / (time.process_time() - start))
    return best


def measure(task: str, worlds: int) -> dict[str, Any]:
    own = steps_per_cpu_second(ours(task, worlds), worlds) if task in KEYS else None
    row: dict[str, Any] = {"task": task, "worlds": worlds, "twin_steps": own}
    for name, (tasks, make) in PEERS.items():
        if task not in tasks:
            continue
        try:
            found = steps_per_cpu_second(make(task, worlds), worlds)
        except ImportError:
            row |= {f"{name}_steps": None, f"{name}_ratio": None}
        else:
            row |= {f"{name}_steps": found, f"{name}_ratio": None if own is None else own / found}
    return row


def show(row: dict[str, Any]) -> str:
    own = row["twin_steps"]
    told = f"{row['task']:<10}twin " + (f"{'none':>12}" if own is None else f"{own:>12,.0f}")
    for name in PEERS:
        steps, ratio = row.get(f"{name}_steps"), row.get(f"{name}_ratio")
        if f"{name}_steps" in row:
            shown = "not installed" if steps is None else f"{steps:>10,.0f}"
            told += f"   {name} {shown}" + ("" if ratio is None else f" ({ratio:.1f}x)")
    return told


def table(worlds: int = WORLDS) -> None:
    print(f"environment steps per CPU second, {worlds} worlds, one core, no policy")
    for task in TASKS:
        print(show(measure(task, worlds)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON row per task")
    parser.add_argument("--worlds", type=int, default=WORLDS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.json:
        for task in TASKS:
            print(json.dumps(measure(task, args.worlds)), flush=True)
    else:
        table(args.worlds)


if __name__ == "__main__":
    main()
