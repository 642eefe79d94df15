"""`fairtest policies check`: are the teams in policies/ complete, and good enough to be worth testing?

What a team does wrong before it has learned anything says nothing about fairness. So each team is executed, and must
show what its task calls competent (`Task.competence`):

share       where the task knows how much there is to receive (foraging: rewards are shares of the food), executed as
            it is tested (epsilon-greedy, 0.05, or sampled from its policy: decision 012): at least 0.7 of it, and
            nothing at all in less than 10% of the episodes.
learning    elsewhere, executed greedily: more than a random team on the same seeds (99% interval of the paired
            difference above 0), and more than in the first half of its training, by at least 0.2 standard deviations
            of an episode's return.

The first half is the mean of the learning curve's rows up to half of the training steps. The row before training is
left out: every team beats it, and with it one that learned nothing in the second half would pass. The end of training
is not taken from the curve but executed: a test during training is short, returns go up and down from one to the
next, and these weights are what is shipped.
"""

from __future__ import annotations

import csv
import json
from argparse import Namespace
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.commands.arguments import warn
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.shipped import shipped

if TYPE_CHECKING:
    from epymarl_fairtest.tasks.contract import Competence
    from epymarl_fairtest.team.contract import Team

ORDER = 140
FILES = ("agent.th", "policy.yaml", "learning_curve.csv", "training_pool.npz")
COLUMNS = ["training_steps", "test_return_mean", "test_return_std"]
MEGABYTES = 25  # all folders together
CONFIDENCE = 0.99
CLEARLY = 0.2  # standard deviations of an episode's return: a small effect, and 4 standard errors of 500 episodes


@dataclass(frozen=True)
class Gate:
    """One requirement, met or not; these names are those of --json."""

    team: str
    name: str
    passed: bool
    words: str  # what was found and what is required


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "policies", help="the trained teams that FairTest ships", epilog="example: fairtest policies check"
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    check = actions.add_parser(
        "check",
        help="are they complete and competent? exit code 1 if not",
        epilog="example: fairtest policies check policies/pp-iql",
    )
    check.add_argument("folders", nargs="*", type=Path, metavar="DIR", help="policy folders (all that are shipped)")
    check.add_argument("--episodes", type=int, default=500, help="greedy episodes per team (500)")
    check.add_argument("--json", action="store_true", help="print the result as JSON")
    check.set_defaults(func=check_policies)


def check_policies(args: Namespace) -> int:
    if args.episodes < 20:
        raise FairTestError(f"--episodes {args.episodes} is too few to judge a team; it must be at least 20.")
    folders = args.folders or sorted(path for path in shipped("policies").iterdir() if path.is_dir())
    for folder in folders:
        if not folder.is_dir():
            raise FairTestError(f"There is no policy folder {str(folder)!r}; name folders that hold agent.th.")
    gates = [gate for folder in folders for gate in team_gates(folder, args.episodes)] + [size_gate(folders)]
    passed = all(gate.passed for gate in gates)
    if args.json:
        print(json.dumps({"passed": passed, "episodes": args.episodes, "gates": [asdict(gate) for gate in gates]}))
    else:
        print(table(gates))
    return 0 if passed else 1


def size_gate(folders: list[Path]) -> Gate:
    size = sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file()) / 1e6
    where = "1 folder" if len(folders) == 1 else f"{len(folders)} folders"
    return Gate("all", "size", size < MEGABYTES, f"{size:.1f} MB in {where}; below {MEGABYTES} MB")


def team_gates(folder: Path, episodes: int) -> list[Gate]:
    """Everything about one team. What cannot be read fails a gate of its own, and the next team is checked."""
    from epymarl_fairtest.team.checkpoint import load_record
    from epymarl_fairtest.team.saved import saved_team

    team = folder.resolve().name
    missing = [name for name in FILES if not (folder / name).is_file()]
    gates = [Gate(team, "files", not missing, "missing: " + ", ".join(missing) if missing else ", ".join(FILES))]
    try:
        record = load_record(folder)
        trained = f"policy.yaml says how it was trained: {record.algorithm}, {record.training_steps} steps"
        gates.append(Gate(team, "command", bool(record.command), trained if record.command else "policy.yaml has none"))
        tested = saved_team(folder, "env")  # competence is judged on what the team was trained for
        wanted = tested.task.competence(tested.environment)
        if wanted.least_share is not None:
            return gates + share_gates(team, tested, wanted, episodes)
        return gates + learning_gates(team, tested, wanted, episodes, folder / "learning_curve.csv")
    except FairTestError as error:
        return [*gates, Gate(team, "readable", False, str(error))]


def share_gates(name: str, team: Team, wanted: Competence, episodes: int) -> list[Gate]:
    """For a task that knows how much there is to receive."""
    received, greedy = (team_returns(team, episodes, execution=how) for how in (wanted.execution, "greedy"))
    least, most_empty, empty = wanted.least_share or 0.0, wanted.most_empty or 0.0, float((received == 0).mean())
    return [
        Gate(
            name,
            "return",
            bool(received.mean() >= least),
            f"{received.mean():.3f} of 1 in {episodes} episodes ({greedy.mean():.3f} greedily); at least {least}",
        ),
        Gate(name, "empty episodes", empty < most_empty, f"{empty:.1%} gave nothing; below {most_empty:.0%}"),
    ]


def learning_gates(name: str, team: Team, wanted: Competence, episodes: int, curve: Path) -> list[Gate]:
    received = team_returns(team, episodes, execution=wanted.execution)
    random = team_returns(team, episodes, execution="epsilon_greedy", epsilon=1.0)
    low, high = interval(received - random)
    half = first_half(curve)
    least = half + CLEARLY * float(received.std(ddof=1))
    return [
        Gate(
            name,
            "random team",
            low > 0,
            f"return {received.mean():.2f}, random {random.mean():.2f} on {episodes} seeds; better by"
            f" {low:.2f} to {high:.2f} ({CONFIDENCE:.0%}), above 0",
        ),
        Gate(
            name,
            "first half",
            bool(received.mean() > least),
            f"return {received.mean():.2f}, first half of training {half:.2f}; above {least:.2f}",
        ),
    ]


def team_returns(team: Team, episodes: int, **how: Any) -> NDArray[np.float64]:
    """What the team received in each episode, all agents together; always the same episodes."""
    from epymarl_fairtest.core.episodes import tests_from_seeds
    from epymarl_fairtest.core.judged import totals
    from epymarl_fairtest.engine.selection import make_engine
    from epymarl_fairtest.strategies import configure

    engine = make_engine(team, configure(how), warn)
    seeds = np.arange(episodes)
    tests = tests_from_seeds(seeds, seeds.astype(np.uint64), team.task.state_size)
    returns: NDArray[np.float64] = totals(engine.execute(tests).rewards).sum(axis=-1)
    return returns


def interval(differences: NDArray[np.float64]) -> tuple[float, float]:
    """Student's interval of the mean, at CONFIDENCE."""
    from scipy import stats

    count = len(differences)
    width = stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1) * differences.std(ddof=1) / np.sqrt(count)
    return float(differences.mean() - width), float(differences.mean() + width)


def first_half(curve: Path) -> float:
    """Mean return of the tests up to half of the training steps, without the one before training."""
    try:
        with curve.open(newline="") as file:
            header, *rows = csv.reader(file)
        steps, returns = (np.array([float(row[column]) for row in rows]) for column in (0, 1))
    except (OSError, ValueError, IndexError) as error:
        raise FairTestError(f"{str(curve)!r} cannot be read as a learning curve: {error}") from error
    share = np.round(steps / steps[-1:], 2)  # a test comes up to an episode after the step it was meant for
    early = (share > 0) & (share <= 0.5)
    if header != COLUMNS or not early.any() or not np.isfinite(returns).all():
        raise FairTestError(
            f"{str(curve)!r} is not a learning curve: it needs the columns {', '.join(COLUMNS)}, finite returns, and at"
            " least one test between the beginning and half of the training steps."
        )
    return float(returns[early].mean())


def table(gates: list[Gate]) -> str:
    """One line per gate, the failed ones marked."""
    teams, names = (max(len(getattr(gate, name)) for gate in gates) for name in ("team", "name"))
    lines = [
        f"  {'ok' if gate.passed else 'FAIL':<4}  {gate.team:<{teams}}  {gate.name:<{names}}  {gate.words}"
        for gate in gates
    ]
    failed = sum(not gate.passed for gate in gates)
    return "\n".join([*lines, f"{len(gates) - failed} of {len(gates)} gates passed."])
