"""`fairtest export`: failures of a run as a pytest file that any later checkpoint of the team must pass.

Knows which failures make good tests. What their starts are, and how a team plays them: testing/regression.py.
"""

from __future__ import annotations

import json
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.store.scenarios import FORMAT, Scenarios, scenarios_of, write_files

if TYPE_CHECKING:
    from epymarl_fairtest.core.episodes import Episodes
    from epymarl_fairtest.store.finished import FinishedRun
    from epymarl_fairtest.tasks.contract import Task
    from epymarl_fairtest.testing.regression import Outcome

ORDER = 100
DEFAULT = 5  # failures that are exported unless the user says otherwise


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "export",
        help="write failures as a pytest file that a repaired team must pass",
        epilog="example: fairtest export RUN --pytest tests/test_fairness_regression.py --worst 10",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="finished run")
    parser.add_argument("--pytest", type=Path, required=True, metavar="FILE", help="test file to write: test_*.py")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--ids", type=int, nargs="+", metavar="ID", help="these failures (column id of failures.csv)")
    chosen.add_argument("--worst", type=int, metavar="N", help="those with the lowest index, each root first once (5)")
    chosen.add_argument("--representative", type=int, metavar="N", help="representative failures")
    chosen.add_argument("--smallest", action="store_true", help="the smallest examples of explain.json instead")
    parser.add_argument("--policy", type=Path, metavar="DIR", help="team that the file tests by default (the run's)")
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(func=export)


def export(args: Namespace) -> int:
    from epymarl_fairtest.store.finished import read_run
    from epymarl_fairtest.team.saved import saved_team, team_folder
    from epymarl_fairtest.testing.regression import check_team, replay

    run = read_run(args.run, "executions.npz", "failures.npz")
    test_file, data_file = targets(args.pytest, force=args.force)
    failures = failures_of(run)
    policy = team_folder(run.path, run.manifest, args.policy)
    facts = facts_of(run, failures, policy)
    team = saved_team(policy, facts["allocation"])
    check_team(facts, team, policy)
    if args.smallest:
        scenarios = scenarios_of(*smallest_of(run, failures), facts)
    else:
        candidates = Candidates(failures, run, team.task)
        rows = candidates.chosen(args)
        scenarios = scenarios_of(failures.take(rows), candidates.index[rows], facts)
    outcomes = replay(scenarios, team)
    same_team = team.origin["policy_digest"] == facts["policy_digest"]
    if args.smallest and same_team:  # as it is played here, where some were explained without exploration
        scenarios.rows["index"] = np.array([outcome.index for outcome in outcomes])
    fair = [outcome.failure for outcome in outcomes if not outcome.unfair]
    if same_team and fair:
        raise FairTestError(
            f"Replayed here, the same team is not unfair in {_ids(fair)}: the run was made with other versions or on"
            " another machine, or its files were changed. Test the team again, or choose other failures with --ids."
        )
    write_files(test_file, data_file, scenarios, policy, run.path)
    rest = {"file": str(test_file), "data": str(data_file), "policy": str(policy), "same_team": same_team}
    if args.json:
        print(json.dumps({**rest, "failures": [outcome.as_dict() for outcome in outcomes]}))
    else:
        print(table(scenarios, outcomes, rest))
    return 0


def failures_of(run: FinishedRun) -> Episodes:
    from epymarl_fairtest.store.failures import load_failures

    failures = load_failures(run.path / "failures.npz")
    if not len(failures):
        raise FairTestError(f"The run {str(run.path)!r} found no failures: there is nothing to export.")
    return failures


def smallest_of(run: FinishedRun, failures: Episodes) -> tuple[Episodes, NDArray[np.float64]]:
    from epymarl_fairtest.store.smallest import smallest_examples

    found = smallest_examples(run, failures)
    if found is None:
        raise FairTestError(
            f"The run {str(run.path)!r} holds no smallest examples: none was found, or nobody asked (fairtest explain"
            f" {run.path}). Without --smallest its failures themselves are exported."
        )
    return found


def targets(test_file: Path, *, force: bool) -> tuple[Path, Path]:
    """The test file and its data; both must be new unless forced."""
    if test_file.suffix != ".py" or not (test_file.stem.startswith("test_") or test_file.stem.endswith("_test")):
        raise FairTestError(f"--pytest {str(test_file)!r} would not be found by pytest; name it test_*.py.")
    data_file = test_file.with_name(f"{test_file.stem}_failures.npz")
    existing = [str(path) for path in (test_file, data_file) if path.exists()]
    if existing and not force:
        exist = "exists" if len(existing) == 1 else "exist"
        raise FairTestError(
            f"{' and '.join(existing)} already {exist}; overwrite with --force, or choose another name."
        )
    return test_file, data_file


class Candidates:
    """Which failures can be exported, and which of them are worth it."""

    def __init__(self, failures: Episodes, run: FinishedRun, task: Task) -> None:
        from epymarl_fairtest.core.episodes import operator_code
        from epymarl_fairtest.core.indices import INDICES
        from epymarl_fairtest.core.judged import Judge

        self._failures, self._task = failures, task
        judge = Judge(INDICES[run.settings["index"]], run.theta, run.agents)
        self.index = judge.index(judge.received(failures.rewards))
        kind = failures.operator
        # Nothing says which of the recorded actions were forced: such a start has no free continuation.
        self._playable = kind != operator_code("action") if task.restorable else kind == operator_code("seed")
        before = np.arange(failures.limit)[None, :, None] < failures.start_step[:, None, None]
        inherited = judge.received(np.where(before, failures.rewards, 0.0))
        self._own = ~judge.unfair(inherited)  # it was not unfair already when the team took over
        self._stable = ~np.isin(failures.id, run.unstable)

    def chosen(self, args: Namespace) -> NDArray[np.int64]:
        from epymarl_fairtest.campaign.selection import representative, trajectories_of, worst

        if args.ids is not None:
            return self._named(list(dict.fromkeys(args.ids)))
        option = "worst" if args.representative is None else "representative"
        number = DEFAULT if getattr(args, option) is None else getattr(args, option)
        if number < 1:
            raise FairTestError(f"--{option} {number} is not allowed; it must be at least 1.")
        good = np.flatnonzero(self._playable & self._own & self._stable)
        if not len(good):
            raise FairTestError(
                f"None of {len(self.index)} failures makes a good test: {(~self._playable).sum()} have forced actions,"
                f" {(~self._own).sum()} were unfair before the team took over, {(~self._stable).sum()} are unstable."
                " Name the ones you want anyway with --ids."
            )
        if option == "worst":
            return good[worst(self.index[good], number, self._failures.root_seed[good])]
        return good[representative(*trajectories_of(self._task, self._failures.take(good)), number)]

    def _named(self, ids: list[int]) -> NDArray[np.int64]:
        known = {int(number): row for row, number in enumerate(self._failures.id)}
        unknown = [number for number in ids if number not in known]
        if unknown:
            raise FairTestError(f"{_ids(unknown)}: not in this run. Its {len(known)} failures are in failures.csv.")
        rows = np.array([known[number] for number in ids])
        forced = self._failures.id[rows[~self._playable[rows]]]
        if len(forced):
            raise FairTestError(
                f"{_ids(forced)}: not exportable, because some actions were forced and nothing says which; another team"
                " could not act by itself."
            )
        return rows


def _ids(numbers: Any) -> str:
    return "failure " + ", ".join(str(int(number)) for number in numbers)


def facts_of(run: FinishedRun, failures: Episodes, policy: Path) -> dict[str, Any]:
    """How the run played and judged; what its manifest lacks about the environment is in the team's record."""
    from epymarl_fairtest.team.checkpoint import load_record
    from epymarl_fairtest.testing.regression import plain

    return {
        **{name: run.settings[name] for name in ("index", "allocation", "execution", "epsilon", "temperature")},
        "format": FORMAT,
        "theta": run.theta,
        "task": run.manifest["task"],
        "key": run.manifest.get("key"),
        "env_args": plain(load_record(policy).env_args),
        "time_limit": failures.limit,
        "agents": failures.actions.shape[2],
        "judged": run.agents,
        "state_size": failures.states.shape[2],
        "policy_digest": run.manifest.get("policy_digest"),
    }


def table(scenarios: Scenarios, outcomes: list[Outcome], rest: dict[str, Any]) -> str:
    lines = [f"{'failure':>9}  {'made by':<9}  {'from step':>9}  {'index':>6}  {'team now':>8}"]
    kinds, index = scenarios.rows["operator"].tolist(), scenarios.rows["index"].tolist()
    for outcome, kind, before in zip(outcomes, kinds, index, strict=True):
        now = "-" if np.isnan(outcome.index) else f"{outcome.index:.4f}"
        lines.append(f"{outcome.failure:>9}  {kind:<9}  {outcome.start_step:>9}  {before:>6.4f}  {now:>8}")
    unfair = sum(outcome.unfair for outcome in outcomes)
    team = "the run's team" if rest["same_team"] else "not the run's weights"
    lines.append(f"{rest['policy']} ({team}) is unfair in {unfair} of {len(outcomes)}.")
    lines.append(f"Wrote {rest['file']} and {rest['data']}. Run: python -m pytest {rest['file']}")
    if find_spec("pytest") is None:  # the files are for wherever the team is tested, which need not be here
        lines.append("pytest is not installed here: pip install pytest")
    return "\n".join(lines)
