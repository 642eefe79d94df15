"""Fairness regression tests: play an exported failure with any team. Files written by `fairtest export` import this.

A scenario is a failure's start (its seed, or its state with the steps that led there) and its exploration. The team
under test acts by itself from there; nothing of the old team's choices is forced. As in the run, the whole episode is
judged: a scenario that starts in the middle includes what its first steps paid.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from epymarl_fairtest.core.episodes import Episodes, operator_code, replay_tests, tests_from_seeds
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge, numbers_of, of_agents
from epymarl_fairtest.engine.selection import real_engine
from epymarl_fairtest.store.scenarios import Scenarios, load_scenarios
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.checkpoint import load_record
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.team.saved import saved_team


@dataclass(frozen=True)
class Outcome:
    """What a team did from the start of a failure."""

    failure: int
    index: float  # NaN where nobody received anything
    theta: float
    index_name: str
    received: tuple[float, ...]  # by each judged agent, in the whole episode
    inherited: tuple[float, ...]  # of that, before the team took over
    start_step: int
    length: int
    agents: tuple[int, ...] = ()  # the judged ones, counted from 1; none named: all

    @property
    def unfair(self) -> bool:
        return self.index <= self.theta

    @property
    def sentence(self) -> str:
        name = INDICES[self.index_name].label
        if np.isnan(self.index):
            return f"failure {self.failure}: nobody received anything, {name} is undefined"
        verdict = "unfair, does not exceed" if self.unfair else "fair, exceeds"
        agents = self.agents or range(1, len(self.received) + 1)
        paid = ", ".join(f"agent {agent} {x:.4g}" for agent, x in zip(agents, self.received, strict=True))
        sentence = f"failure {self.failure}: {name} {self.index:.4f} is {verdict} {self.theta:.4g}; received: {paid}"
        if self.start_step:
            kept = ", ".join(f"{x:.4g}" for x in self.inherited)
            sentence += f"; of that {kept} before the team took over at step {self.start_step} of {self.length}"
        return sentence

    def as_dict(self) -> dict[str, Any]:
        defined = not np.isnan(self.index)
        return {**self.__dict__, "index": self.index if defined else None, "unfair": self.unfair}


def replay_failure(data: str | Path, failure: int, policy: str | Path) -> Outcome:
    """Play one exported failure with the team in `policy`; exported test files call this."""
    scenarios, folder = load_scenarios(Path(data)), Path(policy)
    row = np.flatnonzero(scenarios.rows["id"] == failure)
    if not len(row):
        ids = ", ".join(map(str, scenarios.rows["id"].tolist()))
        raise FairTestError(f"{str(data)!r} holds no failure {failure}, only {ids}. Export the test file again.")
    one = Scenarios(scenarios.facts, {name: values[row[:1]] for name, values in scenarios.rows.items()})
    team = saved_team(folder, scenarios.facts["allocation"])
    check_team(scenarios.facts, team, folder)
    (outcome,) = replay(one, team)
    return outcome


def replay(scenarios: Scenarios, team: Team) -> list[Outcome]:
    """All scenarios with this team, in the real environment, judged as in the run."""
    facts, rows = scenarios.facts, scenarios.rows
    how = {name: facts[name] for name in ("execution", "epsilon", "temperature")}
    engine = real_engine(team, configure(how))
    if team.task.restorable:
        tests = replay_tests(engine.seen(kept_steps(scenarios, team)))
    else:
        tests = tests_from_seeds(rows["root_seed"], rows["stream"], team.task.state_size)
    of_team = facts.get("judged", "all")
    judged = Judge(INDICES[facts["index"]], facts["theta"], of_team)(engine.execute(tests))
    played, received, index = judged.episodes, judged.received, judged.index
    kept = of_agents(rows["rewards"].sum(axis=1), of_team)
    agents = tuple(numbers_of(of_team, team.task.n_agents))
    return [
        Outcome(
            failure=int(rows["id"][row]),
            index=float(index[row]),
            theta=facts["theta"],
            index_name=facts["index"],
            agents=agents,
            received=tuple(received[row].tolist()),
            inherited=tuple(kept[row].tolist()),
            start_step=int(played.start_step[row]),
            length=int(played.length[row]),
        )
        for row in range(len(scenarios))
    ]


def check_team(facts: dict[str, Any], team: Team, policy: Path) -> None:
    """Refuse a team of another environment than the one that the failures were found in."""
    record = load_record(policy)
    here = {
        "task": team.task.name,
        "key": record.key,
        "env_args": plain(record.env_args),
        "time_limit": team.limit,
        "agents": team.task.n_agents,
        "state_size": team.task.state_size,
    }
    wrong = [f"{name} {facts[name]!r} there and {value!r} here" for name, value in here.items() if facts[name] != value]
    if wrong:
        raise FairTestError(
            f"The team in {str(policy)!r} cannot play these failures, they were found elsewhere: {'; '.join(wrong)}."
        )


def kept_steps(scenarios: Scenarios, team: Team) -> Episodes:
    """The scenarios as episodes that were played up to their start."""
    rows, count, limit = scenarios.rows, len(scenarios), team.limit
    agents, latest = team.task.n_agents, rows["actions"].shape[1]
    states = np.zeros((count, limit + 1, team.task.state_size))
    actions = np.full((count, limit, agents), -1, np.int16)
    rewards = np.zeros((count, limit, agents))
    states[:, : latest + 1], actions[:, :latest], rewards[:, :latest] = rows["states"], rows["actions"], rows["rewards"]
    return Episodes(
        states=states,
        obs=np.empty((count, limit, agents, 0), np.float32),  # a team with memory needs them: they are made again
        actions=actions,
        rewards=rewards,
        q=np.zeros((count, limit, agents, team.policy.n_actions), np.float32),
        length=rows["start_step"],
        operator=np.array([operator_code(name) for name in rows["operator"].tolist()], np.int8),
        parent=np.full(count, -1, np.int64),
        **{name: rows[name] for name in ("id", "root_seed", "stream", "shift", "start_step")},
    )


def plain(value: Any) -> Any:
    """As it comes back from JSON."""
    return json.loads(json.dumps(value))
