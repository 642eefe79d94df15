"""Particle scenarios with goals: somebody is paid for how near somebody comes to one landmark, and agents may talk.

State: as everywhere in the particle world (rules.py), then the number of the landmark that each goal is, then the word
that each agent who can talk said last, counted from 1 (0: nothing yet).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.tasks.contract import Array, Edit, Task
from epymarl_fairtest.tasks.layers import wrappers
from epymarl_fairtest.tasks.mpe.rules import MpeTask, distance
from epymarl_fairtest.tasks.mpe.situations import closest_pair, evenness, left_behind
from epymarl_fairtest.tasks.scene import Body, Field, bodies, plane
from epymarl_fairtest.tasks.views import nearest_first, numbered, pick, straight, without_oneself

OTHERS = 3  # the nearest ones that count


@dataclass(frozen=True)
class Roles:
    """Who is paid for whom."""

    holders: Sequence[Sequence[int]]  # of each goal: the simulator agents that know it
    mover: Sequence[int]  # by agent: the one whose distance it is paid for
    goal: Sequence[int]  # by agent: the goal that is measured to


def ways(states: Array, agents: int, landmarks: int, roles: Roles) -> tuple[Array, Array]:
    """By agent, where the one is whose distance it is paid for, and where that one should be: (..., agents, 2) each."""
    places = 4 * agents + 2 * landmarks
    at = states[..., : 4 * agents].reshape(*states.shape[:-1], agents, 4)[..., :2]
    marks = states[..., 4 * agents : places].reshape(*states.shape[:-1], landmarks, 2)
    numbers = states[..., places + np.array(roles.goal)].astype(np.int64)
    return at[..., list(roles.mover), :], np.take_along_axis(marks, numbers[..., None], axis=-2)


class GoalTask(MpeTask):
    """A scenario with goals; everybody acts and everybody is under test."""

    reach: ClassVar[float] = 1.0
    speed: ClassVar[float] = 2.0  # where thrust (5 * 0.1 per step) and damping (a quarter) balance
    legend: ClassVar[str] = "Squares are landmarks; a diamond is the goal that the agent of that number is paid for."
    goal_name: ClassVar[str]  # of the simulator's agents' attribute

    @staticmethod
    @abstractmethod
    def roles(agents: int) -> Roles:
        """Of a scenario with so many agents."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        world = self._simulator(wrappers(env)).world
        self._roles, self._landmarks = self.roles(self.bodies), len(world.landmarks)
        self._talkers = [number for number, agent in enumerate(world.agents) if not agent.silent]
        self._goals_end = self.placed_size + len(self._roles.holders)
        self.state_size = self._goals_end + len(self._talkers)

    def tail(self, others: list[int]) -> list[int] | None:
        return None

    def state_of(self, world: Any) -> Array:
        marks = {id(landmark): number for number, landmark in enumerate(world.landmarks)}
        goals = [marks[id(getattr(world.agents[who[0]], self.goal_name))] for who in self._roles.holders]
        words = [world.agents[number].state.c for number in self._talkers]
        said = [int(word.argmax()) + 1 if word.any() else 0 for word in words]
        return np.concatenate([super().state_of(world), np.array([*goals, *said], np.float64)])

    def _put(self, world: Any, state: Array) -> None:
        super()._put(world, state)
        for who, number in zip(self._roles.holders, self.goals(state), strict=True):
            for agent in who:
                setattr(world.agents[agent], self.goal_name, world.landmarks[number])
        for agent, word in zip(self._talkers, state[self._goals_end :].astype(int).tolist(), strict=True):
            if word:
                world.agents[agent].state.c[word - 1] = 1.0

    def goals(self, states: Array) -> NDArray[np.int64]:
        """The number of the landmark that each goal is: (..., goals)."""
        return states[..., self.placed_size : self._goals_end].astype(np.int64)

    def ways(self, states: Array) -> tuple[Array, Array]:
        return ways(states, self.bodies, self._landmarks, self._roles)

    def start_vectors(self, states: Array) -> Array:
        goals = 2 * states[..., self.placed_size : self._goals_end] / max(self._landmarks - 1, 1) - 1
        return np.concatenate([super().start_vectors(states), goals], axis=-1)

    def starts_from(self, vectors: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Nobody has said anything yet."""
        places = 2 * (self.bodies + self._landmarks)
        states, fine = super().starts_from(vectors[:, :places])
        goals = vectors[:, places:]
        states[:, self.placed_size : self._goals_end] = np.rint((goals + 1) / 2 * (self._landmarks - 1))
        return states, fine & (np.abs(goals) <= 1).all(axis=1)

    def start_places(self, starts: Array) -> Array:
        """The places of the goals once more: another goal is another start."""
        marks = np.take_along_axis(self.landmarks(starts), self.goals(starts)[..., None], axis=-2)
        return np.concatenate([super().start_places(starts), marks], axis=-2)

    def bodies_of_starts(self, size: int) -> NDArray[np.int64]:
        number, places = np.arange(size), 2 * (self.bodies + self._landmarks)
        return np.where(number < places, number // 2, number - places // 2)  # x, y; each goal by itself

    def simplifications(self) -> list[Edit]:
        return [edit for edit in super().simplifications() if "out of the way" not in edit.words]

    def is_start(self, states: Array) -> NDArray[np.bool_]:
        goals, said = states[:, self.placed_size : self._goals_end], states[:, self._goals_end :]
        known = np.all(np.isin(goals, np.arange(self._landmarks)), axis=1) & np.all(said == 0, axis=1)
        start: NDArray[np.bool_] = super().is_start(states) & known
        return start

    def features(self, starts: Array) -> Array:
        at, (mover, goal) = self.positions(starts), self.ways(starts)
        parts = [at, goal - mover, straight(goal, mover)[..., None], goal - at, mover - at]
        towards = without_oneself(at[:, None] - at[:, :, None])
        near = nearest_first(straight(towards, 0 * towards), OTHERS)
        return numbered([*parts, pick(towards, near)])

    def situation(self, starts: Array) -> dict[str, Array]:
        apart = distance(*self.ways(starts))
        same = (self.goals(starts) == self.goals(starts)[:, :1]).all(axis=1) * 1.0
        several = {"all have the same goal": same} if len(self._roles.holders) > 1 else {}
        return several | {
            "Jain's index of the distances to the goals": evenness(apart),
            "the longest distance to a goal": apart.max(axis=-1),
            "the shortest distance to a goal": apart.min(axis=-1),
            "the distance between the two agents closest to each other": closest_pair(self.positions(starts)),
            "the distance between the two landmarks closest to each other": closest_pair(self.landmarks(starts)),
        }

    def course(self, states: Array, length: NDArray[np.int32]) -> dict[str, Array]:
        name = "steps in which one distance to a goal is 0.5 longer than the middle one"
        return {name: left_behind(distance(*self.ways(states)), length)}

    def field(self, states: Array) -> Field:
        agents, (_, goal) = bodies("agent", self.positions(states), 0.1), self.ways(states)
        always = np.ones(len(states), bool)
        # One goal of several agents is marked once.
        marked = {number: agent for agent, number in reversed(list(enumerate(self._roles.goal)))}
        goals = [Body("diamond", str(agent + 1), 0.06, goal[:, agent], always) for agent in marked.values()]
        return plane([*bodies("square", self.landmarks(states), 0.05), *goals, *agents])

    @classmethod
    def rebuilt(cls, agents: int, key: str, env_args: Mapping[str, Any]) -> Task | None:
        return cls.alone()
