"""Does an environment go on alike from where another one is? Many continuations of each, and what one copy costs.

python -m benchmarks.restore lbforaging:Foraging-8x8-3p-3f-v3 epymarl_fairtest:mpe-spread-v0 --continuations 1000

An environment whose task can write states back is put there by its state; any other, and with --generic every one, by
copying what its layers hold.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import gymnasium
import numpy as np

import epymarl_fairtest  # noqa: F401  (registers the environments)
from epymarl_fairtest.host.build import load_host
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.contract import env_reward
from epymarl_fairtest.tasks.generic.proof import by_copy, by_state, compared, played
from epymarl_fairtest.tasks.generic.rules import GenericTask
from epymarl_fairtest.tasks.world import World

BEFORE, AFTER = 15, 10  # steps at most before a copy, and after it


def restored(key: str, continuations: int, generic: bool = False) -> str:
    """One row of the table."""
    env = gymnasium.make(key, disable_env_checker=True)
    env.reset(seed=0)
    task = GenericTask(env) if generic else task_for(env)
    spaces = list(env.action_space)  # type: ignore[call-overload]
    counts = np.array([int(space.n) for space in spaces])
    available = np.arange(counts.max()) < counts[:, None]
    size = max(gymnasium.spaces.flatdim(space) for space in env.observation_space)  # type: ignore[attr-defined]

    def world() -> World:
        return World(gymnasium.make(key, disable_env_checker=True), task, env_reward, obs_size=size)

    why = task.admit(world, available)
    if not task.restorable:
        return f"{key:45} {task.name:17} not restorable: {why}"
    one, two = world(), world()
    how, place = ("copy", by_copy) if task.retraced else ("state", by_state)
    generator, made, different, took, seed = np.random.default_rng(0), 0, 0, 0.0, 0
    while made < continuations:
        seed += 1
        ways = [generator.integers(0, counts).astype(np.int16) for _ in range(BEFORE + AFTER)]
        one.reset(seed)
        step = played(one, ways[: int(generator.integers(1, BEFORE + 1))])
        if one.done:
            continue
        made += 1
        began = time.process_time()
        place(one, two, step)
        took += time.process_time() - began
        different += compared(one, two, seed, step, ways[step : step + AFTER]) is not None
    each = 1000 * took / continuations
    return f"{key:45} {task.name:17} {continuations} continuations by {how}, {different} differ, {each:.2f} ms each"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("keys", nargs="+", metavar="KEY", help="gymnasium ids of multi-agent environments")
    parser.add_argument("--continuations", type=int, default=1000)
    parser.add_argument("--generic", action="store_true", help="as if nobody knew the environments")
    args = parser.parse_args(words)
    if any(key.startswith(("pz-", "vmas-")) for key in args.keys):  # ids that EPyMARL registers
        _ = load_host("epymarl").environments
    for key in args.keys:
        print(restored(key, args.continuations, args.generic), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
