"""The engine for any environment: many worlds step together, one forward pass of the policy per step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Tests, empty_episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.rewards import refuse_odd, side_by_side
from epymarl_fairtest.core.scores import greedy, recorded
from epymarl_fairtest.engine.action_rules import choose
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.tasks.world import World
from epymarl_fairtest.team.contract import CHUNK, Policy

# Making a world can take as long as an episode in it (the particle worlds load a font and paper to draw on): few are
# made for few tests, although each forward pass would serve more.
FEWEST_WORLDS, FEWEST_EPISODES = 64, 16


class Lockstep:
    name = "lockstep"
    keeps_obs = True
    keeps_course, keeps_memory = True, False  # and does so whatever is asked: the worlds take far longer

    def __init__(
        self, make_world: Callable[[], World], policy: Policy, rule: ActionRule, *, limit: int, state_size: int
    ) -> None:
        self._make_world, self._policy, self.rule = make_world, policy, rule
        self.limit, self.state_size = limit, state_size
        self.needs_obs = policy.hidden_size > 0
        self._worlds: list[World] = []  # made when first needed, used again for every batch
        self.episodes = self.steps = 0  # executed so far

    def execute(self, tests: Tests) -> Episodes:
        episodes = refuse_odd(Episodes.concatenate(self.play(tests.plain(self.limit))))
        self.episodes += len(episodes)
        self.steps += episodes.executed_steps()
        return episodes

    def play(self, tests: Tests) -> list[Episodes]:
        """The episodes of these tests, group by group."""
        size = min(max(len(tests) // FEWEST_EPISODES, FEWEST_WORLDS), CHUNK)
        # At least one group: no tests give no episodes, of the right shapes.
        groups = [tests.take(slice(first, first + size)) for first in range(0, max(len(tests), 1), size)]
        return [self._execute_group(group) for group in groups]

    def initial_states(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        """What the resets of these seeds give (B, S); nothing is stepped."""
        (world,) = self._some_worlds(1)
        states = np.empty((len(seeds), self.state_size))
        for state, seed in zip(states, seeds, strict=True):
            world.reset(int(seed))
            state[:] = world.state()
        return states

    def seen(self, episodes: Episodes) -> Episodes:
        """The episodes with what the agents saw before `start_step`, looked at in the worlds: it is not stored."""
        policy = self._policy
        obs = np.zeros((len(episodes), episodes.limit, policy.n_agents, policy.obs_size), np.float32)
        if policy.hidden_size:  # without memory the past does not matter
            (world,) = self._some_worlds(1)
            for row, steps in enumerate(episodes.start_step):
                if world.retraced:
                    world.reset(int(episodes.root_seed[row]))
                for step in range(steps):
                    if not world.retraced:
                        world.restore(episodes.states[row, step], step)
                    obs[row, step] = world.obs
                    if world.retraced:
                        world.step(episodes.actions[row, step])
        return replace(episodes, obs=obs)

    def _some_worlds(self, count: int) -> list[World]:
        while len(self._worlds) < count:
            self._worlds.append(self._make_world())
        return self._worlds[:count]

    def _execute_group(self, tests: Tests) -> Episodes:
        policy, rule = self._policy, self.rule
        episodes = blank_episodes(tests, policy, limit=self.limit, state_size=self.state_size, seen=self.keeps_obs)
        worlds = self._some_worlds(len(tests))
        begin(worlds, tests)
        hidden, last = memory_before(policy, tests.prefix, tests.start_step, known=tests.memory)
        step = tests.start_step.copy()
        rows = np.flatnonzero(step < self.limit)  # the episodes that are still running
        for number, world in enumerate(worlds):
            episodes.states[number, step[number]] = world.state()
        while rows.size:
            at = step[rows]
            obs = np.stack([worlds[row].obs for row in rows])
            q, hidden[rows] = policy.forward(obs, last[rows], hidden[rows])
            finite = np.isfinite(q).all(axis=(1, 2))
            if not finite.all():
                bad = int(finite.argmin())
                raise not_finite(int(tests.root_seed[rows[bad]]), int(at[bad]), policy.reading)
            q = recorded(q, rule.available, policy.reading)
            actions = choose(q, tests.stream[rows], at + tests.shift[rows], rule)
            if tests.greedy is not None:
                actions = np.where(tests.greedy[rows], greedy(q, rule.available), actions)
            if tests.forced is not None:
                forced = tests.forced[rows, at]
                actions = np.where(forced >= 0, forced, actions)
            if self.keeps_obs:
                episodes.obs[rows, at] = obs
            episodes.q[rows, at], episodes.actions[rows, at] = q, actions
            for row, action in zip(rows, actions, strict=True):
                worlds[row].step(action)
            episodes.rewards[rows, at] = side_by_side([worlds[row].reward for row in rows], policy.n_agents)
            last[rows] = actions
            step[rows] += 1
            episodes.states[rows, at + 1] = [worlds[row].state() for row in rows]
            rows = np.array([r for r in rows if not worlds[r].done and step[r] < self.limit], np.intp)
        episodes.length[:] = step
        return episodes


def begin(worlds: Sequence[World], tests: Tests) -> None:
    """Each world where its test begins. A way that several tests have in common is gone once, and copied."""
    arrived: dict[bytes, World] = {}
    for row, (world, from_seed) in enumerate(zip(worlds, tests.from_seed, strict=True)):
        seed, first = int(tests.root_seed[row]), int(tests.start_step[row])
        if from_seed:
            world.reset(seed)
        elif not world.retraced:
            world.restore(tests.start_state[row], first)
        else:
            way = np.empty((0, 0), np.int16) if tests.prefix is None else tests.prefix.actions[row, :first]
            known = arrived.setdefault(seed.to_bytes(8, "little") + way.tobytes(), world)
            if known is world:
                world.retrace(seed, way)
            else:
                world.follow(known)


def blank_episodes(
    tests: Tests, policy: Policy, *, limit: int, state_size: int, seen: bool, stale: bool = False
) -> Episodes:
    """Episodes of this policy ready to be filled, the kept prefixes in place; with room for what is `seen`."""
    return empty_episodes(
        tests,
        limit=limit,
        agents=policy.n_agents,
        actions=policy.n_actions,
        state_size=state_size,
        obs_size=policy.obs_size if seen else 0,
        stale=stale,
    )


def memory_before(
    policy: Policy,
    prefix: Episodes | None,
    start: NDArray[np.int32],
    seen: Callable[[NDArray[np.float64]], NDArray[np.float32]] | None = None,
    known: NDArray[np.float32] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
    """Hidden states and last actions that the policy carries into step `start` of each of these episodes.

    The hidden state is a function of what the agents saw: it is computed again instead of being kept for every step of
    every episode, from what was recorded or from what is `seen` in the recorded states; unless it is `known`.
    """
    shape = (len(start), policy.n_agents)
    hidden = np.zeros((*shape, policy.hidden_size), np.float32) if known is None else known.copy()
    last = np.full(shape, -1, np.int16)
    if prefix is None or not start.any():
        return hidden, last
    if policy.hidden_size and known is None:
        longest, of = _different_pasts(prefix, start)
        now = np.zeros((len(longest), *hidden.shape[1:]), np.float32)
        for t in range(int(start.max())):
            on = np.flatnonzero(start[longest] > t)
            rows = longest[on]
            before = prefix.actions[rows, t - 1] if t else last[rows]
            obs = prefix.obs[rows, t] if seen is None else seen(prefix.states[rows, t])
            _, now[on] = policy.forward(obs, before, now[on])
            due = np.flatnonzero(start == t + 1)
            hidden[due] = now[of[due]]
    late = np.flatnonzero(start > 0)
    last[late] = prefix.actions[late, start[late] - 1]
    return hidden, last


def _different_pasts(prefix: Episodes, start: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """One row for each past, the one that goes furthest, and for each row which of those its own is: tests that
    continue one episode share what happened before they begin. An episode is known by its id; one without an id is a
    past of its own."""
    own = np.arange(len(start))
    if len(prefix.id) != len(start):
        return own, own
    _, of = np.unique(np.where(prefix.id >= 0, prefix.id, -1 - own), return_inverse=True)
    longest = np.zeros(int(of.max(initial=-1)) + 1, np.int64)
    order = np.argsort(start, kind="stable")
    longest[of[order]] = order  # the last one that is written goes furthest
    return longest, of.reshape(-1)


def q_if_seen(
    policy: Policy, episodes: Episodes, steps: NDArray[np.int32], obs: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The team's Q-values (B, N, A), had it seen `obs` (B, N, D) at step `steps` of `episodes`."""
    hidden, last = memory_before(policy, episodes, steps)
    return policy.forward(obs, last, hidden)[0]


def not_finite(seed: int, step: int, reading: str) -> FairTestError:
    scores = "Q-values" if reading == "q" else "logits"
    return FairTestError(
        f"The team's {scores} are not finite (seed {seed}, step {step}): the network holds NaN or infinite"
        f" weights, or training diverged. FairTest needs finite {scores}; load an earlier checkpoint"
        " (load_step=...) or train with a smaller learning rate."
    )
