"""What can be drawn of one episode, whatever draws it: the task's field, and what each agent has received.

Pure numpy; knows no drawing tool and no environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import OPERATORS, Episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Agents, of_agents, places_of
from epymarl_fairtest.report.operators import operator_named
from epymarl_fairtest.tasks.contract import Array, Task
from epymarl_fairtest.tasks.scene import AGENT, Field, Fields, rounded


@dataclass(frozen=True)
class Scene:
    """One episode; everything that has steps+1 rows begins with the state before the first step."""

    field: Field
    received: Array  # (steps+1, n_agents) by each agent so far
    course: Array  # (steps+1,) fairness index of what was received so far, NaN where it is undefined
    start_step: int  # the first step that was executed; 0: all of them
    operator: str
    id: int
    root_seed: int
    actions: NDArray[np.int16]  # (steps, n_agents)
    theta: float | None = None  # up to this index the episode is unfair
    judged: Agents = "all"  # whose index it is

    @property
    def steps(self) -> int:
        return len(self.actions)

    @property
    def index(self) -> float:
        """Fairness index of the whole episode."""
        return float(self.course[-1])

    @property
    def verdict(self) -> str:
        if np.isnan(self.index):
            return "undefined"
        return "unfair" if self.theta is not None and self.index <= self.theta else "fair"

    @property
    def happened(self) -> str:
        """How the test was made, as a caption says it."""
        return operator_named(self.operator).caption_at(self.start_step)

    @property
    def changed(self) -> bool:
        """Was an episode changed at `start_step`?"""
        return operator_named(self.operator).changes

    @property
    def costs(self) -> bool:
        """Is what agents receive nowhere more than nothing?"""
        return bool(self.received.min() < 0 >= self.received.max())

    @property
    def worse(self) -> NDArray[np.bool_]:
        """Which of the judged agents come off badly?"""
        return worse_off(self.received[-1], self.judged)

    def as_json(self) -> dict[str, Any]:
        """Plain and small, for the player in the report; three decimals are less than a pixel."""
        return self.outline() | {
            "bodies": [body.as_json() for body in self.field.bodies],
            "received": rounded(self.received),
            "operator": self.operator,
            "seed": self.root_seed,
        }

    def outline(self) -> dict[str, Any]:
        """The same without whatever has a value for every step."""
        return {
            "kind": self.field.kind,
            "low": rounded(self.field.low),
            "high": rounded(self.field.high),
            "start": self.start_step,
            "index": None if np.isnan(self.index) else round(self.index, 3),
            "id": self.id,
        }


def worse_off(received: Array, judged: Agents = "all") -> NDArray[np.bool_]:
    """Who of the judged agents ends nearer to the least that one of them received than to the most, by row; nobody
    where all received the same."""
    worse = np.zeros(received.shape, bool)
    own = received[..., places_of(judged, received.shape[-1])]
    least, most = own.min(axis=-1, keepdims=True), own.max(axis=-1, keepdims=True)
    worse[..., places_of(judged, received.shape[-1])] = own - least < most - own
    return worse


@dataclass(frozen=True)
class Played:
    """Episodes without their tests and verdicts."""

    fields: Fields
    received: Array  # (episodes, most steps+1, n_agents) by each agent so far


def played(task: Task, states: Array, rewards: Array, steps: NDArray[np.int32]) -> Played:
    """Rows of episodes, of which so many steps were played."""
    if (steps < rewards.shape[1]).any():  # one that has ended stands still
        states = states[np.arange(len(steps))[:, None], np.minimum(np.arange(states.shape[1]), steps[:, None])]
    fields = Fields.of(task.fields(states, steps), steps)
    for kind, things in fields.casts:
        refuse_other_agents(task, kind, sum(thing.shape == AGENT for thing in things), rewards.shape[2])
    return Played(fields, _received(rewards))


def _received(rewards: Array) -> Array:
    """By each agent up to each step, and nothing before the first: (episodes, steps+1, n_agents)."""
    episodes, steps, agents = rewards.shape
    received = np.zeros((episodes, steps + 1, agents))
    np.cumsum(rewards, axis=1, out=received[:, 1:])
    return received


def refuse_other_agents(task: Task, kind: str, drawn: int, agents: int) -> None:
    if kind != "none" and drawn != agents:
        raise FairTestError(
            f"The task {task.name!r} draws {drawn} bodies of the shape {AGENT!r} for {agents} agents:"
            " its method field must give one for each agent under test."
        )


def scene_of(
    task: Task, episodes: Episodes, row: int, index: str = "jfi", theta: float | None = None, judged: Agents = "all"
) -> Scene:
    """The episode at `row`; `index` is the name of the fairness index that the `judged` agents are judged with."""
    steps = int(episodes.length[row])
    field, received = task.field(episodes.states[row, : steps + 1]), _received(episodes.rewards[row, None, :steps])[0]
    refuse_other_agents(task, field.kind, len(field.agents), received.shape[1])
    return Scene(
        field,
        received,
        INDICES[index](of_agents(received, judged)),
        int(episodes.start_step[row]),
        OPERATORS[episodes.operator[row]],
        int(episodes.id[row]),
        int(episodes.root_seed[row]),
        episodes.actions[row, :steps],
        theta,
        judged,
    )
