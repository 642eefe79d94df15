"""Are explanations right, and what do they cost? Planted faults, fidelity on other streams, CPU time per failure.

    python -m benchmarks.explain [planted] [thief] [idler] [fidelity] [cost] [share] [situations] [smallest]
                                 [--teams mpe-qmix ...] [--plants 100] [--failures 50] [--seed 0]

planted   One wrong decision (agent, step, action) is forced into fair random executions, wherever the episode is
          continued from, and kept where it makes them unfair; undoing it makes each of them fair, for they were. Is it
          shown, and first? Better: of those where undoing it also helps the worst-off and costs the team at most 2%.
          Enough: of those where it is enough under the rules of a shown decision, too: on 200 other streams it lowers
          P(unfair) by 0.25, helps the worst-off and costs the team at most 2%. Enough on 1,000: the same on 1,000
          streams, where a drop near 0.25 is measured with half the error. Surely: on these by 0.25 and two standard
          errors more, so that it is not the measuring that is measured. Wrong: of each without those where the team's
          own choice was forced in place of a lucky exploration: the team would do the same by itself.
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
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.planted import planted
from benchmarks.subjects import BATCH, OTHER, ROOT, TEAMS, TOGETHER, Subject, subject_of
from benchmarks.thieves import idler, thief
from epymarl_fairtest.campaign.steps.contract import Execute, taken
from epymarl_fairtest.campaign.steps.explain import EXAMPLES, answers
from epymarl_fairtest.campaign.steps.explain.arms import Decision
from epymarl_fairtest.campaign.steps.explain.cases import Cases, Decisions
from epymarl_fairtest.campaign.steps.explain.decisions import measured
from epymarl_fairtest.campaign.steps.explain.situations import features_of, situations
from epymarl_fairtest.campaign.steps.explain.smallest import smallest_examples
from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import Episodes, random_tests


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
        again = subject.ask(measured(cases, case, Decisions(step, agent, action), OTHER, "other"))
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
COUNTED = ("planted", "thief", "idler")  # what these count can be added up


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
        together: Counter[str] = Counter()
        for team in args.teams:
            row = ask(subject_of(team, args.seed), getattr(args, size))
            together.update({name: value for name, value in row.items() if isinstance(value, int)})
            print("  " + shown(row), flush=True)
        if question in COUNTED and len(args.teams) > 1:
            print("  " + shown({"team": "together", **together}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
