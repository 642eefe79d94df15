"""Are explanations right, and what do they cost? Planted faults, fidelity on other streams, CPU time per failure.

    python -m benchmarks.explain [planted] [thief] [idler] [fidelity] [cost] [share] [situations] [smallest]
                                 [--teams mpe-qmix ...] [--plants 100] [--failures 50] [--seed 0]

planted   One wrong decision (agent, step, action) is forced into fair random executions, wherever the episode is
          continued from, and kept where it makes them unfair; undoing it makes each of them fair, for they were. Is it
          shown, and first? Better: of those where undoing it also helps the worst-off and costs the team at most 2%.
          Enough: of those where it is enough under the rules of a shown decision, too: on 200 other streams it lowers
          P(unfair) by 0.25, helps the worst-off and costs the team at most 2%. Surely enough: on 1,000 streams, by 0.25
          and two standard errors more, so that it is not the measuring that is measured. Of both also without those
          where the team's own choice was forced in place of a lucky exploration: nothing is wrong with that decision.
thief     One agent has another policy, which takes what gives it most over two steps compared with the others; fair
          random executions that this makes unfair. Is the thief the agent that is named? Enough: if the thief acts as
          the team's policy says, this episode is fair and P(unfair) on 200 other streams 0.25 lower. A third of
          --plants for each of three agents.
idler     The same with a policy that takes what gives the agent least.
fidelity  P(unfair) before and after the first shown decision, on 200 streams that nobody looked at before.
cost      CPU milliseconds per explained failure, without situations and smallest examples; environment steps, and how
          long one takes here and in random executions before and after.
share     The whole step, situations and smallest examples included, as a share of the CPU time of a run of the preset
          `paper` with the page it draws; `--failures` is not looked at.
situations  Rules as a run shows them: precision beside the base rate, recall, explained failures covered.
smallest  Of up to 10 failures: smallest examples, executed in the real environment.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.contract import Aftermath, Execute, taken
from epymarl_fairtest.campaign.steps.explain import EXAMPLES, answers
from epymarl_fairtest.campaign.steps.explain.arms import ERRORS, LEAST_DROP, Arms, Decision, both_arms
from epymarl_fairtest.campaign.steps.explain.better import compared
from epymarl_fairtest.campaign.steps.explain.cases import Cases, Decisions
from epymarl_fairtest.campaign.steps.explain.decisions import measured
from epymarl_fairtest.campaign.steps.explain.situations import features_of, situations
from epymarl_fairtest.campaign.steps.explain.smallest import smallest_examples
from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Episodes, random_tests
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.core.scores import greedy
from epymarl_fairtest.engine.contract import ActionRule, Engine
from epymarl_fairtest.engine.selection import make_engine, real_engine, twin_of
from epymarl_fairtest.engine.twin import Twin
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.tasks.contract import Kernel
from epymarl_fairtest.team.checkpoint import load_record
from epymarl_fairtest.team.saved import saved_team

ROOT = Path(__file__).resolve().parents[1]
TEAMS = ("mpe-qmix", "mpe-iql", "pp-qmix", "pp-iql", "lbf-qmix", "lbf-iql")
OTHER = 200  # streams that no explanation has seen
MANY = 1000
BATCH = 2000
TOGETHER = 256
MOST_TRIES = 100  # batches of plants


@dataclass(frozen=True)
class Subject:
    """A team and what executes it."""

    name: str
    engine: Engine
    real: Engine
    context: Aftermath
    seed: int  # of the executions that are planted in, robbed or explained

    @property
    def judge(self) -> Judge:
        return self.context.judge

    def ask(self, asking: Any, execute: Callable[[Execute], Episodes] | None = None) -> Any:
        return taken(asking, execute or (lambda wanted: wanted.by(self.engine, self.real)))


def subject_of(name: str, seed: int) -> Subject:
    folder = ROOT / "policies" / name
    allocation = load_record(folder).allocation
    settings = configure({"allocation": allocation, "engine": "twin", "workers": 1})
    team = saved_team(folder, allocation)
    real = real_engine(team, settings)
    engine = make_engine(team, settings, print, real=real)
    engine.keeps_obs = False
    judge = Judge(INDICES["jfi"], team.task.theta)
    found: Any = None
    context = Aftermath(team, settings, 0, judge, found, (0, 0), {}, lambda episodes: episodes, print)
    return Subject(name, engine, real, context, seed)


# --- planted faults -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Undone:
    """Case by case: is undoing the fault enough, as measured and beyond the error of measuring?"""

    better: NDArray[np.bool_]
    enough: NDArray[np.bool_]
    surely: NDArray[np.bool_]


@dataclass(frozen=True)
class Planted:
    """Fair executions that one wrong decision made unfair, and the team that makes it."""

    episodes: Episodes
    step: NDArray[np.int64]
    agent: NDArray[np.int64]
    action: NDArray[np.int64]  # the wrong one
    own: NDArray[np.int64]  # what the team did

    def execute(self, engine: Engine) -> Callable[[Execute], Episodes]:
        """The faulty team: its wrong decision is made in every continuation, unless another one is forced there."""

        def run(wanted: Execute) -> Episodes:
            tests = wanted.tests
            shape = (len(tests), *self.episodes.actions.shape[1:])
            forced = np.full(shape, -1, np.int16) if tests.forced is None else tests.forced.copy()
            rows, case = np.arange(len(tests)), tests.parent
            there = forced[rows, self.step[case], self.agent[case]]
            forced[rows, self.step[case], self.agent[case]] = np.where(there < 0, self.action[case], there)
            return replace(wanted, tests=replace(tests, forced=forced)).by(engine, engine)

        return run


def plants(subject: Subject, count: int) -> Planted:
    generator = rng.named(subject.seed, "plants", subject.name)
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


def undoing(subject: Subject, cases: Cases, undone: Decisions, execute: Callable[[Execute], Episodes]) -> Undone:
    """Does undoing help under the rules of a shown decision? OTHER streams for all, MANY for those that may pass."""
    rows = np.arange(len(cases))
    received = subject.ask(cases.outcomes(rows, undone.step, None, undone), execute)
    better = compared(subject.judge, cases.received, received).better
    slip = np.ones(len(cases), bool)
    drawn = cases.streams("other", MANY)
    arms = subject.ask(both_arms(cases, rows, undone, drawn[:, :OTHER]), execute).arms
    few = arms.decisions(cases, rows, undone, slip)
    enough = np.array([one.clear for one in few]) & better
    again = np.flatnonzero(np.array([one.may_be_clear() for one in few]) & better)
    more = subject.ask(both_arms(cases, again, undone.take(again), drawn[:, OTHER:]), execute).arms
    many = (arms.take(again) + more).decisions(cases, again, undone.take(again), slip[again])
    surely = np.zeros(len(cases), bool)
    surely[again] = [one.helps and one.drop - ERRORS * one.error >= LEAST_DROP for one in many]
    return Undone(better, enough, surely)


def planted(subject: Subject, count: int) -> dict[str, Any]:
    found = plants(subject, count)
    execute = found.execute(subject.engine)
    counts: Counter[str] = Counter()
    for start in range(0, len(found.episodes), TOGETHER):
        rows = np.arange(start, min(start + TOGETHER, len(found.episodes)))
        cases = Cases.of(subject.context, found.episodes.take(rows))
        undone = Decisions(found.step[rows], found.agent[rows], found.own[rows])
        undo = undoing(subject, cases, undone, execute)
        wrong = found.action[rows] != chosen(subject, cases, undone)
        of = {"plants": np.ones(len(cases), bool), "better": undo.better, "enough": undo.enough}
        of |= {"enough, wrong": undo.enough & wrong, "surely": undo.surely, "surely, wrong": undo.surely & wrong}
        decisions = subject.ask(answers(cases), execute).decisions
        for case in range(len(cases)):
            mine = [(one.step, one.agent) for one in decisions if one.case == case]
            place = (int(undone.step[case]), int(undone.agent[case]))
            for name, holds in of.items():
                counts[name] += int(holds[case])
                counts[f"{name}: shown"] += int(holds[case] and place in mine)
                counts[f"{name}: first"] += int(holds[case] and mine[:1] == [place])
    return {"team": subject.name, **counts}


def chosen(subject: Subject, cases: Cases, undone: Decisions) -> NDArray[np.integer]:
    """What the team itself would have done there."""
    rows = np.arange(len(cases))
    return greedy(cases.episodes.q[rows, undone.step], subject.context.team.available)[rows, undone.agent]


# --- a thief -----------------------------------------------------------------------------------------


class Thieving:
    """A task's rules, under which one agent has another policy: it takes the action of most worth over two steps.
    Where all have the same it does as the team's policy says."""

    def __init__(self, kernel: Kernel, thief: int, actions: int, worth: Callable[[Any, Any], Any]) -> None:
        self._kernel, self._thief, self._actions, self._worth_of = kernel, thief, actions, worth
        self.reset, self.observe = kernel.reset, kernel.observe

    def step(self, states: Any, running: Any, actions: Any, rewards: Any, over: Any, steps: Any) -> None:
        own = actions[:, self._thief].copy()
        bid = own >= self._actions  # forced by an explanation: it is done as asked
        own[bid] -= self._actions
        best, value = own.copy(), self._worth(states, running, actions, own, over, steps)
        for action in range(self._actions):
            other = np.full_like(own, action)
            worth = self._worth(states, running, actions, other, over, steps)
            best, value = np.where(worth > value, other, best), np.maximum(worth, value)
        actions[:, self._thief] = np.where(bid, own, best)
        self._kernel.step(states, running, actions, rewards, over, steps)

    def _worth(self, states: Any, running: Any, actions: Any, own: Any, over: Any, steps: Any) -> Any:
        """Everybody does the same twice: in the particle world a push moves nobody before the step after it."""
        actions, states, over, steps = actions.copy(), states.copy(), over.copy(), steps.copy()
        actions[:, self._thief] = own
        total = np.zeros((len(states), actions.shape[1]))
        for _ in range(2):
            rewards, on = np.zeros_like(total), running & ~over
            self._kernel.step(states, on, actions, rewards, over, steps)
            total += rewards
            steps += on
        mine = total[:, self._thief]
        return np.round(self._worth_of(mine, (total.sum(axis=1) - mine) / max(actions.shape[1] - 1, 1)), 9)


REPLACED: dict[str, Callable[[Any, Any], Any]] = {
    "thief": lambda mine, others: mine - others,  # takes most, compared with the others
    "idler": lambda mine, others: -mine,  # takes least
}


def thieves(subject: Subject, kind: str) -> list[Engine]:
    """The team with another policy in the place of each agent."""
    team = subject.context.team
    kernel = twin_of(team)
    assert kernel is not None
    rule = ActionRule("epsilon_greedy", subject.context.settings.epsilon, 1.0, team.available)
    made: list[Engine] = []
    for agent in range(team.task.n_agents):
        other: Any = Thieving(kernel, agent, team.policy.n_actions, REPLACED[kind])
        made.append(Twin(other, team.policy, rule, limit=team.limit, state_size=team.task.state_size))
        made[-1].keeps_obs = False
    return made


def stolen(subject: Subject, engine: Engine, thief: int) -> Callable[[Execute], Episodes]:
    """Executes the team with its thief, which acts as the team's policy says where a test asks that of it."""

    def run(wanted: Execute) -> Episodes:
        tests = wanted.tests.plain(subject.context.team.limit)
        honest = np.zeros(len(tests), bool) if tests.greedy is None else tests.greedy[:, thief]
        forced = None if tests.forced is None else tests.forced.copy()
        if forced is not None:
            forced[:, :, thief] += np.where(forced[:, :, thief] >= 0, subject.context.team.policy.n_actions, 0)
        parts = [np.flatnonzero(~honest), np.flatnonzero(honest)]
        with_thief = replace(wanted, tests=replace(tests, forced=forced).take(parts[0])).by(engine, engine)
        without = replace(wanted, tests=tests.take(parts[1])).by(subject.engine, subject.engine)
        return Episodes.concatenate([with_thief, without]).take(np.argsort(np.concatenate(parts)))

    return run


def robbed(subject: Subject, engine: Engine, kind: str, thief: int, count: int) -> Episodes:
    """Random executions that are fair, and unfair with the thief."""
    generator = rng.named(subject.seed, kind, subject.name, thief)
    parts: list[Episodes] = []
    while sum(map(len, parts)) < count and len(parts) < MOST_TRIES:
        tests = random_tests(BATCH, subject.context.team.task.state_size, generator)
        before = subject.judge(subject.engine.execute(tests))
        after = subject.judge(engine.execute(tests))
        parts.append(after.episodes.take(after.unfair & ~before.unfair & ~before.undefined))
    episodes = Episodes.concatenate(parts).take(slice(0, count))
    episodes.id = np.arange(len(episodes))
    return episodes


def thief(subject: Subject, count: int, kind: str = "thief") -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for agent, engine in enumerate(thieves(subject, kind)):
        episodes = robbed(subject, engine, kind, agent, count // 3)
        counts["unfair"] += len(episodes)
        execute = stolen(subject, engine, agent)
        for start in range(0, len(episodes), TOGETHER):
            cases = Cases.of(subject.context, episodes.take(slice(start, start + TOGETHER)))
            enough = replaced(subject, cases, agent, execute)
            responsible = subject.ask(answers(cases), execute).responsible
            for case in range(len(cases)):
                named = responsible[case].agent if case in responsible else None
                counts["enough"] += int(enough[case])
                counts["enough: named"] += int(enough[case] and named == agent)
                counts["enough: another named"] += int(enough[case] and named not in (None, agent))
                counts["named"] += int(named == agent)
                counts["another named"] += int(named not in (None, agent))
    return {"team": subject.name, **counts}


def idler(subject: Subject, count: int) -> dict[str, Any]:
    return thief(subject, count, "idler")


def replaced(subject: Subject, cases: Cases, agent: int, execute: Callable[[Execute], Episodes]) -> NDArray[np.bool_]:
    """Is it enough that the thief acts as the team's policy says?"""
    judge, rows = subject.judge, np.arange(len(cases))
    alone = np.tile(np.arange(subject.context.team.task.n_agents) == agent, (len(cases), 1))
    once = subject.ask(cases.outcomes(rows, cases.first, greedy=alone), execute)
    fair = compared(judge, cases.received, once).fair
    of = rows.repeat(OTHER)
    drawn = cases.streams("other", OTHER).ravel()
    both = np.stack(
        [
            subject.ask(cases.outcomes(of, cases.first[of], drawn, greedy=own), execute)
            for own in (np.zeros_like(alone)[of], alone[of])
        ]
    )
    unfair = np.stack([judge.unfair(part) for part in both]).reshape(2, -1, OTHER)
    totals = both.reshape(2, len(cases), OTHER, -1).sum(axis=2)
    arms = Arms(OTHER, unfair.sum(axis=2), (unfair[0] != unfair[1]).sum(axis=1), totals)
    enough: NDArray[np.bool_] = fair & (arms.drop >= LEAST_DROP)
    return enough


# --- fidelity and cost --------------------------------------------------------------------------------


def natural_failures(subject: Subject, count: int) -> Episodes:
    generator = rng.named(subject.seed, "failures", subject.name)
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
    steps = 0

    def execute(wanted: Execute) -> Episodes:
        nonlocal steps
        episodes = wanted.by(subject.engine, subject.real)
        steps += episodes.executed_steps()
        return episodes

    engine = engine_speed(subject)
    start = time.process_time()
    for first in range(0, count, TOGETHER):
        taken(answers(Cases.of(subject.context, failures.take(slice(first, first + TOGETHER)))), execute)
    spent = time.process_time() - start
    engine = (engine + engine_speed(subject)) / 2
    return {
        "team": subject.name,
        "failures": count,
        "CPU ms per failure": 1000 * spent / count,
        "steps per failure": round(steps / count),
        "CPU us per step": 1e6 * spent / steps,
        "of a random execution": engine,
    }


def engine_speed(subject: Subject) -> float:
    """CPU microseconds per step of random executions, now: on a shared machine that changes from minute to minute."""
    tests = random_tests(BATCH, subject.context.team.task.state_size, rng.named(0, "speed"))
    start = time.process_time()
    episodes = subject.engine.execute(tests)
    return 1e6 * (time.process_time() - start) / episodes.executed_steps()


def share(subject: Subject, count: int) -> dict[str, Any]:
    """A run as a user starts it, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "-c", "import sys; from epymarl_fairtest.commands import main; sys.exit(main())"]
        options = ["--policy", str(ROOT / "policies" / subject.name), "--preset", "paper", "--out", str(run)]
        subprocess.run([*command, "run", *options, "--seed", str(subject.seed)], check=True, capture_output=True)
        summary = json.loads((run / "summary.json").read_text())
    step, total = summary["phases"]["explaining"], summary["cpu_seconds"]
    explained = summary["explain"]["explained"]
    return {"team": subject.name, "explained": explained, "CPU s": step, "of": total, "share": step / total}


# --- situations and smallest examples -------------------------------------------------------------------


def rules(subject: Subject, count: int) -> dict[str, Any]:
    """The rules that a run of this team shows, judged on fresh random executions."""
    failures = natural_failures(subject, count)
    covered = features_of(subject.context, failures, np.ones(count, bool))
    found = subject.ask(situations(subject.context, covered))
    lines = [
        f"| {subject.name} | {one['rule']} | {one['kind']} | {one['precision']:.2f} ({one['base_rate']:.3f})"
        f" | {one['recall']:.2f} | {one['size']} of {count} |"
        for one in found
    ]
    return {"team": subject.name, "rules": len(found), "": "\n" + "\n".join(lines)}


def smallest(subject: Subject, count: int) -> dict[str, Any]:
    """Smallest examples: how many failures have one, and are they unfair and the same in the real environment?"""
    count = min(count, EXAMPLES)
    cases = Cases.of(subject.context, natural_failures(subject, count))
    found, _ = subject.ask(smallest_examples(cases, range(count)))
    return {
        "team": subject.name,
        "failures": count,
        "with a smallest example": len(found),
        "the same in the real environment": sum(one["confirmed"] for one in found.values()),
        "unfair there": sum(one["unfair"] for one in found.values()),
        "with a fair neighbour": sum(one["nearest_fair"] is not None for one in found.values()),
    }


QUESTIONS: dict[str, tuple[Callable[[Subject, int], dict[str, Any]], str]] = {
    "planted": (planted, "plants"),
    "thief": (thief, "plants"),
    "idler": (idler, "plants"),
    "fidelity": (fidelity, "failures"),
    "cost": (cost, "failures"),
    "share": (share, "failures"),
    "situations": (rules, "failures"),
    "smallest": (smallest, "failures"),
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
    parser.add_argument("--seed", type=int, default=0, help="0 was tuned on; what is published has another")
    args = parser.parse_args(words)
    for question in args.questions or QUESTIONS:
        ask, size = QUESTIONS[question]
        print(question)
        for team in args.teams:
            print("  " + shown(ask(subject_of(team, args.seed), getattr(args, size))), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
