"""Can an environment be restored? Found out by trying, on environments of our own: a few episodes, twice.

Nothing is trusted that was not seen to agree bit for bit: the same seed must give the same episode, and an environment
that was put where another one is must go on as that one does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from epymarl_fairtest.tasks.world import World

Place = Callable[[World, World, int], None]
"""place(there, here, step): put `here` into the state of `there`, which is at `step`."""

SEEDS = (1, 20_011, 2_000_000_011)
BEFORE = 5  # steps that are played before restoring


@dataclass(frozen=True)
class Difference:
    """The first thing that was not the same twice."""

    seed: int
    step: int
    what: str

    def __str__(self) -> str:
        return f"seed {self.seed}, step {self.step}: other {self.what}"


def same_episodes(one: World, two: World, actions: Callable[[int], Sequence[Any]]) -> Difference | None:
    """Does a seed give the same episode in two environments, whatever they played before?"""
    for seed in SEEDS:
        for world in (one, two):
            world.reset(seed)
        first = compared(one, two, seed, 0, actions(seed))
        if first is not None:
            return first
        one.reset(seed + 1)  # so that the two have different pasts
    return None


def same_continuations(
    one: World, two: World, actions: Callable[[int], Sequence[Any]], place: Place
) -> Difference | None:
    """Does an environment go on alike from where another one is, and from where it was itself?"""
    for seed in SEEDS:
        chosen = actions(seed)
        one.reset(seed)
        step = played(one, chosen[:BEFORE])
        if one.done:
            continue
        two.reset(seed + 1)
        place(one, two, step)
        first = compared(one, two, seed, step, chosen[step:])
        if first is not None:
            return first
    return None


def played(world: World, actions: Sequence[Any]) -> int:
    """How many of these joint actions could be played before the episode ended."""
    for step, joint in enumerate(actions):
        if world.done:
            return step
        world.step(joint)
    return len(actions)


def compared(one: World, two: World, seed: int, step: int, actions: Sequence[Any]) -> Difference | None:
    """The same actions in both, and the first thing that differs."""
    for joint in (None, *actions):
        if joint is not None:
            if one.done:
                return None
            one.step(joint)
            two.step(joint)
            step += 1
        pairs: dict[str, tuple[Any, Any]] = {"observations": (one.obs, two.obs), "states": (one.state(), two.state())}
        if joint is not None:
            pairs["rewards"] = one.reward, two.reward
        for what, (a, b) in pairs.items():
            if a.tobytes() != b.tobytes():
                return Difference(seed, step, what)
        if one.done != two.done:
            return Difference(seed, step, "end")
    return None


def by_copy(there: World, here: World, step: int) -> None:
    here.follow(there)


def by_state(there: World, here: World, step: int) -> None:
    here.restore(there.state(), step)
