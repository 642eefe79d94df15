"""Are explanations right, and what do they cost? Planted faults, fidelity on other streams, CPU time per failure.

    python -m benchmarks.explain [planted] [fidelity] [cost] [--teams mpe-qmix ...] [--plants 100] [--failures 50]

planted   One wrong decision (agent, step, action) is forced into fair random executions, wherever the episode is
          continued from, and kept where it makes them unfair. Is it shown, and first? Asked where undoing it is enough:
          on 200 other streams it lowers P(unfair) by 0.25, helps the worst-off and costs the team at most 2 %.
fidelity  P(unfair) before and after the first shown decision, on 200 streams that nobody looked at before.
cost      CPU milliseconds per explained failure, without situations and smallest examples.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.contract import Aftermath, taken
from epymarl_fairtest.campaign.steps.explain import answers
from epymarl_fairtest.campaign.steps.explain.cases import Cases, Decisions
from epymarl_fairtest.campaign.steps.explain.decisions import Decision, measured
from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Episodes, Tests, random_tests
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.checkpoint import load_record
from epymarl_fairtest.team.saved import saved_team

ROOT = Path(__file__).resolve().parents[1]
TEAMS = ("mpe-qmix", "mpe-iql", "pp-qmix", "pp-iql", "lbf-qmix", "lbf-iql")
OTHER = 200  # streams that no explanation has seen
CLEARLY = 0.4  # a drop that a check on 48 streams cannot miss by chance
BATCH = 2000
TOGETHER = 64
MOST_TRIES = 100  # batches of plants


@dataclass(frozen=True)
class Subject:
    """A team and what executes it."""

    name: str
    engine: Engine
    context: Aftermath

    @property
    def judge(self) -> Judge:
        return self.context.judge

    def ask(self, asking: Any, execute: Callable[[Tests], Episodes] | None = None) -> Any:
        run = execute or self.engine.execute
        return taken(asking, lambda wanted: run(wanted.tests))


def subject_of(name: str, seed: int = 0) -> Subject:
    folder = ROOT / "policies" / name
    allocation = load_record(folder).allocation
    settings = configure({"allocation": allocation, "engine": "twin", "workers": 1})
    team = saved_team(folder, allocation)
    engine = make_engine(team, settings, print)
    engine.keeps_obs = False
    judge = Judge(INDICES["jfi"], team.task.theta)
    found: Any = None
    context = Aftermath(team, settings, seed, judge, found, (0, 0), {}, lambda episodes: episodes, print)
    return Subject(name, engine, context)


# --- planted faults -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    """Fair executions that one wrong decision made unfair, and the team that makes it."""

    episodes: Episodes
    step: NDArray[np.int64]
    agent: NDArray[np.int64]
    action: NDArray[np.int64]  # the wrong one
    own: NDArray[np.int64]  # what the team did

    def execute(self, engine: Engine) -> Callable[[Tests], Episodes]:
        """The faulty team: its wrong decision is made in every continuation, unless another one is forced there."""

        def run(tests: Tests) -> Episodes:
            shape = (len(tests), *self.episodes.actions.shape[1:])
            forced = np.full(shape, -1, np.int16) if tests.forced is None else tests.forced.copy()
            rows, case = np.arange(len(tests)), tests.parent
            there = forced[rows, self.step[case], self.agent[case]]
            forced[rows, self.step[case], self.agent[case]] = np.where(there < 0, self.action[case], there)
            return engine.execute(replace(tests, forced=forced))

        return run


def plants(subject: Subject, count: int, seed: int = 0) -> Planted:
    generator = rng.named(seed, "plants", subject.name)
    team = subject.context.team
    parts: list[Episodes] = []
    kept: list[tuple[NDArray[np.int64], ...]] = []
    while sum(len(part) for part in parts) < count and len(kept) < MOST_TRIES:
        tests = random_tests(BATCH, team.task.state_size, generator)
        before = subject.judge(subject.engine.execute(tests))
        fair = np.flatnonzero(~before.unfair & ~before.undefined)
        step = (generator.random(len(fair)) * before.episodes.length[fair]).astype(np.int64)
        agent = generator.integers(0, team.task.n_agents, len(fair))
        own = before.episodes.actions[fair, step, agent].astype(np.int64)
        action = (own + generator.integers(1, team.policy.n_actions, len(fair))) % team.policy.n_actions
        wrong = tests.take(fair)
        wrong.forced = np.full((len(fair), team.limit, team.task.n_agents), -1, np.int16)
        wrong.forced[np.arange(len(fair)), step, agent] = action
        after = subject.judge(subject.engine.execute(wrong))
        rows = np.flatnonzero(after.unfair)
        parts.append(after.episodes.take(rows))
        kept.append((step[rows], agent[rows], action[rows], own[rows]))
    episodes = Episodes.concatenate(parts).take(slice(0, count))
    episodes.id = np.arange(len(episodes))
    columns = [np.concatenate([one[n] for one in kept])[:count] for n in range(4)]
    return Planted(episodes, *columns)


def planted(subject: Subject, count: int) -> dict[str, Any]:
    found = plants(subject, count)
    execute = found.execute(subject.engine)
    enough = shown = first = clearly = clearly_shown = 0
    for start in range(0, len(found.episodes), TOGETHER):
        rows = np.arange(start, min(start + TOGETHER, len(found.episodes)))
        cases = Cases.of(subject.context, found.episodes.take(rows))
        undone = Decisions(found.step[rows], found.agent[rows], found.own[rows])
        own = np.arange(len(rows))
        undo = subject.ask(measured(cases, own, undone, np.ones(len(rows), bool), OTHER, "other"), execute)
        decisions = subject.ask(answers(cases), execute).decisions
        for case in np.flatnonzero([one.clear for one in undo]):
            mine = [(one.step, one.agent) for one in decisions if one.case == case]
            place = (int(undone.step[case]), int(undone.agent[case]))
            enough += 1
            shown += place in mine
            clearly += undo[case].drop >= CLEARLY
            clearly_shown += undo[case].drop >= CLEARLY and place in mine
            first += mine[:1] == [place]
    return {
        "team": subject.name,
        "plants": len(found.episodes),
        "enough": enough,
        "shown": shown,
        "first": first,
        f"lowering by {CLEARLY}": clearly,
        "of them shown": clearly_shown,
    }


# --- fidelity and cost --------------------------------------------------------------------------------


def natural_failures(subject: Subject, count: int) -> Episodes:
    generator = rng.named(0, "failures", subject.name)
    parts: list[Episodes] = []
    while sum(map(len, parts)) < count:
        judged = subject.judge(
            subject.engine.execute(random_tests(BATCH, subject.context.team.task.state_size, generator))
        )
        parts.append(judged.episodes.take(judged.unfair))
    episodes = Episodes.concatenate(parts).take(slice(0, count))
    episodes.id = np.arange(len(episodes))
    return episodes


def explained(subject: Subject, failures: Episodes) -> list[tuple[Cases, list[Decision]]]:
    found = []
    for start in range(0, len(failures), TOGETHER):
        cases = Cases.of(subject.context, failures.take(slice(start, start + TOGETHER)))
        found.append((cases, list(subject.ask(answers(cases)).decisions)))
    return found


def fidelity(subject: Subject, count: int) -> dict[str, Any]:
    before: list[float] = []
    after: list[float] = []
    for cases, decisions in explained(subject, natural_failures(subject, count)):
        best = list({one.case: one for one in reversed(decisions)}.values())
        case, step, agent, action = (
            np.array([getattr(one, name) for one in best], np.int64) for name in ("case", "step", "agent", "action")
        )
        again = subject.ask(
            measured(cases, case, Decisions(step, agent, action), np.ones(len(case), bool), OTHER, "other")
        )
        before += [one.p_before for one in again]
        after += [one.p_unfair for one in again]
    drop = np.array(before) - np.array(after)
    return {
        "team": subject.name,
        "failures": count,
        "with a decision": len(drop),
        "before": float(np.mean(before)) if before else None,
        "after": float(np.mean(after)) if after else None,
        "drop of 0.2": float((drop >= 0.2).mean()) if len(drop) else None,
    }


def cost(subject: Subject, count: int) -> dict[str, Any]:
    failures = natural_failures(subject, count)
    explained(subject, failures.take(slice(0, 2)))  # compiled
    start = time.process_time()
    explained(subject, failures)
    return {"team": subject.name, "failures": count, "CPU ms per failure": 1000 * (time.process_time() - start) / count}


QUESTIONS: dict[str, tuple[Callable[[Subject, int], dict[str, Any]], str]] = {
    "planted": (planted, "plants"),
    "fidelity": (fidelity, "failures"),
    "cost": (cost, "failures"),
}


def shown(row: dict[str, Any]) -> str:
    return "  ".join(
        f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
    )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="*", choices=[*QUESTIONS, []], default=[])
    parser.add_argument("--teams", nargs="+", default=list(TEAMS), choices=TEAMS)
    parser.add_argument("--plants", type=int, default=100, help="of each team")
    parser.add_argument("--failures", type=int, default=50, help="of each team")
    args = parser.parse_args(words)
    for question in args.questions or QUESTIONS:
        ask, size = QUESTIONS[question]
        print(question)
        for team in args.teams:
            print("  " + shown(ask(subject_of(team), getattr(args, size))), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
