"""Whole searches with small teams: exact accounts, exact repetition, failures that replay, and bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.regenerate import RUNS, SUMMARY, golden_run
from support import TESTS, every_method, in_small, policy_folder, training_sample
from test_operators import Drift, Wanderers

from epymarl_fairtest.campaign.run import run
from epymarl_fairtest.campaign.steps import natural
from epymarl_fairtest.core.episodes import OPERATORS, Episodes, replay_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import Judged, totals
from epymarl_fairtest.core.ledger import ACCOUNTINGS
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.host.build import configuration
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.host.tap import host_world
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import configure, strategy_of
from epymarl_fairtest.strategies.fairtest.kept import Kept
from epymarl_fairtest.strategies.fairtest.plan import SMALLEST, Plan, plan_of
from epymarl_fairtest.tasks.contract import env_reward
from epymarl_fairtest.tasks.generic.rules import GenericTask
from epymarl_fairtest.tasks.world import World
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.team.saved import saved_team

LIMITS = {"spread": 8, "tag": 10, "foraging": 12}
STRICT: dict[str, Any] = {"budget": 160, "accounting": "strict"}
PAPER: dict[str, Any] = {"budget": 60, "accounting": "paper"}
THE_PAPERS: dict[str, Any] = {"candidates": "random", "screen": 1}  # the search of the paper, whatever the default is
SCOUTED: dict[str, Any] = {"candidates": "scout", "screen": 6}  # the default
SMALL: dict[str, Any] = {"rounds": 2, "generations": 2, "theta": 0.8, "batch": 48, "engine": "twin", **THE_PAPERS}
TIMES = ("wall_seconds", "cpu_seconds", "phases")


@cache
def team(task: str = "spread", limit: int | None = None) -> Team:
    """A team with memory and random weights; it sees short episodes only."""
    with tempfile.TemporaryDirectory() as folder:
        saved = policy_folder(Path(folder) / "team", task, "gru", time_limit=limit or LIMITS[task])
        return saved_team(saved, "env")


def chosen(**changes: Any) -> Settings:
    return configure({**SMALL, **STRICT, **changes})


def check(settings: Settings) -> None:
    strategy_of(settings).check_settings(settings)


def planned(settings: Settings) -> Plan:
    return plan_of(settings, strategy_of(settings).chosen(settings))


class Recording(RunFolder):
    """A run folder that remembers what was executed, and may stop the run as a user would."""

    def __init__(self, path: Path, stop_after: int | None = None, stop_before_commit: bool = False) -> None:
        super().__init__(path)
        self.batches: list[tuple[str, Episodes]] = []
        self._stop_after, self._stop_before_commit = stop_after, stop_before_commit

    def save_batch(self, number: int, purpose: str, judged: Judged) -> None:
        super().save_batch(number, purpose, judged)
        self.batches.append((purpose, judged.episodes))
        if number == self._stop_after:
            raise KeyboardInterrupt

    def _append(self, entry: dict[str, Any]) -> None:
        if self._stop_before_commit and entry["batch"] == self._stop_after:
            raise KeyboardInterrupt
        super()._append(entry)

    def executed(self, purpose: str) -> list[Episodes]:
        return [episodes for why, episodes in self.batches if why == purpose]


class Result:
    """A finished run: its summary, failures, batches and warnings."""

    def __init__(self, folder: Recording, summary: dict[str, Any], said: list[str]) -> None:
        self.folder, self.summary, self.said = folder, summary, " ".join(said)
        self.failures = columns(folder.path)


def columns(path: Path) -> dict[str, Any]:
    with np.load(path / "failures.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def search(subject: Team, given: Settings, path: Path, seed: int = 5) -> Result:
    folder, said = Recording(path), []  # type: ignore[var-annotated]
    if subject.environment is None:  # nothing that could have a twin
        given = replace(given, engine="auto")
    check(given)
    summary = run(subject, given, folder, seed=seed, command="test", warn=said.append)
    assert json.loads((path / "summary.json").read_text()) == summary
    return Result(folder, summary, said)


def assert_same_run(a: Path, b: Path) -> None:
    left, right = columns(a), columns(b)
    assert left.keys() == right.keys()
    for name, values in left.items():
        assert values.dtype == right[name].dtype, name
        assert values.tobytes() == right[name].tobytes(), name
    summaries = [json.loads((path / "summary.json").read_text()) for path in (a, b)]
    for summary in summaries:
        for name in TIMES:
            del summary[name]
    assert summaries[0] == summaries[1]
    for name in ("failures.csv", "journal.jsonl"):
        assert (a / name).read_bytes() == (b / name).read_bytes(), name


# --- the account --------------------------------------------------------------------------------------


class Counting:
    """A world that counts its steps for all worlds."""

    def __init__(self, world: Any, steps: list[int]) -> None:
        self._world, self._steps = world, steps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def step(self, actions: Any) -> None:
        self._steps[0] += 1
        self._world.step(actions)


def steps_afterwards(summary: dict[str, Any]) -> int:
    """Steps of what was executed after the search: in the account, charged to nobody."""
    steps = ("replay", "natural", "random_team")
    return sum(summary["ledger"].get(name, {"steps": 0})["steps"] for name in steps)


def counted(subject: Team) -> tuple[Team, list[int]]:
    steps = [0]
    return replace(subject, make_world=lambda: Counting(subject.make_world(), steps)), steps


SLOW = [pytest.mark.slow]


def accounts() -> list[Any]:
    """The paper's own search in both accountings and random executions charged for all are in the quick tier. The rest
    is in the slow one: contracts compare each ledger with what the engine executed. What is charged does not depend on
    the task: one accounting of one method of each kind (whole, mutated, spliced and forced episodes) is enough for the
    second, whose episodes end early."""
    quick = {("fairtest", "strict", "spread"), ("fairtest", "paper", "spread"), ("random", "strict", "spread")}
    return [
        pytest.param(*method.values, *how, marks=[*method.marks, *([] if (*method.values, *how) in quick else SLOW)])
        for method in [*every_method(), pytest.param("fairtest, scouted")]
        for how in (*((accounting, "spread") for accounting in ACCOUNTINGS), ("strict", "foraging"))
        if how[1] == "spread" or method.values[0] in ("random", "hill_climber", "mastest", "starla", "fairtest")
    ]


@pytest.mark.parametrize(("method", "accounting", "task"), accounts())
def test_the_ledger_equals_an_independent_count_of_environment_steps(
    method: str, accounting: str, task: str, tmp_path: Path
) -> None:
    subject, steps = counted(team(task))
    source = SCOUTED if method.endswith("scouted") else THE_PAPERS
    named = {**source, "method": method.split(",")[0], "engine": "lockstep", "replay": "all"}
    given = chosen(**{**named, **(PAPER if accounting == "paper" else STRICT)})
    result = search(subject, given, tmp_path / "run")
    ledger = result.summary["ledger"]
    assert steps[0] == sum(entry["steps"] for entry in ledger.values())
    assert result.summary["executed_steps"] == steps[0] - steps_afterwards(result.summary)
    executed = sum(len(episodes) for _, episodes in result.folder.batches)
    assert executed == result.summary["executed_episodes"] == result.summary["evaluated"]
    assert result.summary["charged_strict"] == executed
    counts = {"execution", "unguided", "re-execution", "mutant"}
    assert result.summary["charged_paper"] == sum(e["episodes"] for name, e in ledger.items() if name in counts)
    assert result.summary[f"charged_{accounting}"] <= given.budget
    assert result.summary[f"charged_{accounting}"] >= 0.85 * given.budget
    for purpose, entry in ledger.items():
        if purpose == "replay":
            assert entry["episodes"] == result.summary["failures"] == result.summary["confirmed_failures"]
        elif purpose == "natural":
            assert entry["episodes"] == natural.UNLESS_GIVEN
        elif purpose == "random_team":
            assert entry["episodes"] == result.summary["competence"]["random_team"]["starts"]
        elif purpose != "re-execution":
            assert entry["episodes"] == sum(map(len, result.folder.executed(purpose)))
        else:
            assert entry["steps"] == 0


def test_calibration_is_in_the_ledger(tmp_path: Path) -> None:
    subject, steps = counted(team())
    given = chosen(budget=200, theta="auto", calibration_episodes=40, quantile=0.3, engine="lockstep")
    result = search(subject, given, tmp_path / "run")
    assert result.summary["ledger"]["calibration"] == {"episodes": 40, "steps": 320}
    assert steps[0] == result.summary["executed_steps"] + steps_afterwards(result.summary)
    assert 0 < result.summary["theta"] < 1
    assert result.summary["failures"] > 0


@pytest.mark.parametrize("budget", [129, 200, 333])
def test_a_strict_budget_is_never_exceeded_and_mostly_used(budget: int, tmp_path: Path) -> None:
    result = search(team(), chosen(budget=budget), tmp_path / "run")
    assert 0.85 * budget <= result.summary["executed_episodes"] <= budget


def test_rounds_that_the_budget_does_not_pay_for_are_cut_off(tmp_path: Path) -> None:
    given = chosen(budget=100, pool=40, offspring=8, predictor_episodes=10)
    result = search(team(), given, tmp_path / "run")
    assert result.summary["executed_episodes"] == 100
    assert [len(e) for e in result.folder.executed("candidate")] == [40, 34]


# --- exactly the same again ---------------------------------------------------------------------------


def run_in(path: str, workers: int) -> None:
    """One search in a process of its own."""
    in_small()
    search(team(), chosen(workers=workers), Path(path))


@pytest.mark.fresh
def test_the_same_seed_gives_the_same_failures_in_a_fresh_process_and_with_any_number_of_workers(
    tmp_path: Path,
) -> None:
    command = f"import test_search; test_search.run_in({str(tmp_path / 'there')!r}, 2)"
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONHASHSEED": "random", "PYTHONPATH": path}
    child = subprocess.Popen([sys.executable, "-W", "ignore", "-c", command], env=environment)
    here = search(team(), chosen(workers=1), tmp_path / "here")
    assert here.summary["failures"] > 20
    assert child.wait() == 0
    assert_same_run(tmp_path / "here", tmp_path / "there")


@pytest.mark.slow
def test_another_seed_gives_other_failures(tmp_path: Path) -> None:
    one, two = (search(team(), chosen(), tmp_path / str(seed), seed=seed).failures for seed in (5, 6))
    assert not set(one["root_seed"].tolist()) & set(two["root_seed"].tolist())


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run that was never interrupted."""
    return search(team(), chosen(engine="lockstep"), tmp_path_factory.mktemp("whole") / "run")


def tear_journal(path: Path) -> None:
    text = (path / "journal.jsonl").read_bytes()
    (path / "journal.jsonl").write_bytes(text[:-9])


def truncate_batch(path: Path) -> None:
    last = max((path / "batches").glob("*.npz"))
    last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])


DAMAGE: dict[str, Callable[[Path], None]] = {
    "nothing": lambda path: None,
    "torn-journal": tear_journal,
    "truncated-batch": truncate_batch,
}
BATCHES = 8  # predictor, then two rounds of candidates and two generations, then splices


def test_the_run_to_interrupt_has_every_kind_of_batch(whole: Result) -> None:
    purposes = [purpose for purpose, _ in whole.folder.batches]
    assert purposes == ["predictor", *["candidate", "mutant", "mutant"] * 2, "splice"]
    assert len(purposes) == BATCHES
    assert {"seed", "mutation", "crossover"} <= set(whole.failures["operator"].tolist())


def test_splices_executed_in_several_batches_are_those_of_one(
    whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = Kept.tests
    monkeypatch.setattr(Kept, "tests", lambda self, most: tests(self, 1))
    parts = search(team(), chosen(engine="lockstep"), tmp_path / "run")
    assert [purpose for purpose, _ in parts.folder.batches].count("splice") > 1
    for name, values in whole.failures.items():
        assert values.tobytes() == parts.failures[name].tobytes(), name
    assert {n: v for n, v in parts.summary.items() if n not in TIMES} == {
        n: v for n, v in whole.summary.items() if n not in TIMES
    }


KINDS = [*DAMAGE, "before-commit"]


QUICK = (2, 7)  # two batches of different kinds, with a kind of damage each


@pytest.mark.parametrize(
    ("batch", "damage"),
    [
        pytest.param(batch, KINDS[batch % len(KINDS)], marks=[] if batch in QUICK else [pytest.mark.slow])
        for batch in range(BATCHES)
    ],
)
def test_a_run_interrupted_at_any_batch_ends_as_if_nothing_had_happened(
    batch: int, damage: str, whole: Result, tmp_path: Path
) -> None:
    """Every batch once, every damage twice; epymarl_fairtest.testing interrupts and resumes every strategy."""
    path = tmp_path / "run"
    folder = Recording(path, stop_after=batch, stop_before_commit=damage == "before-commit")
    with pytest.raises(KeyboardInterrupt):
        run(team(), chosen(engine="lockstep"), folder, seed=5, command="test", warn=lambda _: None)
    assert not (path / "summary.json").exists()
    DAMAGE.get(damage, DAMAGE["nothing"])(path)
    subject, steps = counted(team())
    resumed = RunFolder.resume(path)
    summary = run(subject, chosen(engine="lockstep"), resumed, seed=5, command="test", warn=lambda _: None)
    assert_same_run(whole.folder.path, path)
    # What the journal names is not executed again, and what it does not name is.
    kept = batch + (damage == "nothing")
    before = sum(episodes.executed_steps() for _, episodes in whole.folder.batches[:kept])
    assert steps[0] == summary["executed_steps"] + steps_afterwards(summary) - before


@pytest.mark.slow
def test_a_run_can_be_interrupted_again_and_again(whole: Result, tmp_path: Path) -> None:
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(team(), chosen(engine="lockstep"), Recording(path, 1), seed=5, command="test", warn=lambda _: None)
    for batch in (3, 4, 6):
        folder = RunFolder.resume(path)
        again = Recording.__new__(Recording)
        again.__dict__.update(folder.__dict__, batches=[], _stop_after=batch, _stop_before_commit=False)
        with pytest.raises(KeyboardInterrupt):
            run(team(), chosen(engine="lockstep"), again, seed=5, command="test", warn=lambda _: None)
    run(team(), chosen(engine="lockstep"), RunFolder.resume(path), seed=5, command="test", warn=lambda _: None)
    assert_same_run(whole.folder.path, path)


# --- failures are real --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Result]:
    """One search per task."""

    @cache
    def of(task: str) -> Result:
        given = chosen(budget=240, theta={"spread": 0.8, "tag": 0.85, "foraging": 0.7}[task])
        return search(team(task), given, tmp_path_factory.mktemp(task) / "run")

    return of


def with_observations(episodes: Episodes, world: Any) -> Episodes:
    """What the agents saw before the first executed step, looked up again from the recorded states."""
    obs = np.zeros((*episodes.actions.shape, world.obs.shape[1]), np.float32)
    for row in range(len(episodes)):
        for step in range(episodes.start_step[row]):
            world.restore(episodes.states[row, step], step)
            obs[row, step] = world.obs
    return replace(episodes, obs=obs)


def assert_replays(result: Result, subject: Team, make_world: Callable[[], Any], given: Settings) -> None:
    failures = load_failures(result.folder.path / "failures.npz")
    assert len(failures) == result.summary["failures"] > 10
    assert (failures.start_step > 0).any()
    how = ActionRule(given.execution, given.epsilon, given.temperature, subject.available)
    engine = Lockstep(make_world, subject.policy, how, limit=subject.limit, state_size=subject.task.state_size)
    again = engine.execute(replay_tests(with_observations(failures, make_world())))
    assert jfi(totals(again.rewards)) == pytest.approx(result.failures["jfi"], abs=1e-9)
    for name in ("states", "actions", "rewards", "q", "length"):
        assert getattr(again, name).tobytes() == result.failures[name].tobytes(), name


every_task = pytest.mark.parametrize("task", LIMITS)


@every_task
def test_every_failure_replays_from_the_file_alone(task: str, found: Callable[[str], Result]) -> None:
    result = found(task)
    assert_replays(result, team(task), team(task).make_world, chosen())
    operators = set(result.failures["operator"].tolist())
    assert {"seed", "mutation"} <= operators <= {"seed", "mutation", "crossover"}


CONFIGS = {"spread": "fairtest_mpe", "tag": "fairtest_pp", "foraging": "fairtest_lbf"}


@pytest.mark.parametrize("host", ["zoo", "epymarl"], indirect=True)
@every_task
def test_every_failure_replays_through_the_hosts_wrappers(
    task: str, host: Host, found: Callable[[str], Result]
) -> None:
    subject = team(task)
    args = configuration(host, "iql", CONFIGS[task], {"env_args": {"time_limit": LIMITS[task]}})

    def world() -> World:
        wrapper = host.environments["gymma"](**host.environment_arguments(args))
        return host_world(wrapper, subject.task, host, "env")

    assert_replays(found(task), subject, world, chosen())


@every_task
def test_only_executed_episodes_are_failures(task: str, found: Callable[[str], Result]) -> None:
    result = found(task)
    executed = Episodes.concatenate([episodes for _, episodes in result.folder.batches])
    assert executed.id.tolist() == list(range(len(executed)))
    ids = result.failures["id"].tolist()
    assert ids == sorted(set(ids))
    index = jfi(totals(executed.rewards))
    assert ids == np.flatnonzero(index <= result.summary["theta"]).tolist()
    for name in ("states", "actions", "rewards", "q"):
        assert result.failures[name].tobytes() == getattr(executed, name)[ids].tobytes()
    assert result.failures["operator"].tolist() == [OPERATORS[code] for code in executed.operator[ids]]


def test_a_splice_is_a_failure_only_once_it_is_executed(whole: Result) -> None:
    (spliced,) = whole.folder.executed("splice")
    notes = whole.summary["notes"]["splices"]
    crossed = whole.failures["operator"] == "crossover"
    assert whole.summary["ledger"]["splice"]["episodes"] == notes["executed"] == len(spliced) > 0
    assert int(crossed.sum()) == notes["failures"] == int((jfi(totals(spliced.rewards)) <= 0.8).sum())
    assert set(whole.failures["id"][crossed].tolist()) <= set(spliced.id.tolist())
    assert notes["kept"] >= notes["executed"]
    assert not any((e.operator == OPERATORS.index("crossover")).any() for e in whole.folder.executed("mutant"))


def test_parents_are_executed_episodes(whole: Result) -> None:
    known: set[int] = set()
    for purpose, episodes in whole.folder.batches:
        if purpose in ("mutant", "splice"):
            assert set(episodes.parent.tolist()) <= known
        else:
            assert set(episodes.parent.tolist()) == {-1}
        known |= set(episodes.id.tolist()) if purpose != "predictor" else set()


@every_task
def test_the_summary_counts_what_the_failures_are(task: str, found: Callable[[str], Result]) -> None:
    result, known = found(task), team(task).task
    rows = result.failures
    unique, roots, suffix = set(), set(), 0
    near: list[Any] = []
    far: list[Any] = []
    cells: set[int] = set()
    for row in range(len(rows["id"])):
        length, start = int(rows["length"][row]), int(rows["start_step"][row])
        states = rows["states"][row, : length + 1]
        unique.add((states.tobytes(), rows["actions"][row, :length].tobytes()))
        cells |= set(known.cells(states, 4).tolist())
        suffix += bool(jfi(rows["rewards"][row, start:].sum(axis=0)) <= result.summary["theta"])
        path = [[point.tolist() for point in step] for step in known.positions(states)]
        roots.add(int(rows["root_seed"][row]))
        for wide, kept in enumerate((near, far)):
            distance = (1, 3)[wide] * known.distinct_distance
            if all(slow_distance(path, other) > distance for other in kept):
                kept.append(path)
    summary = result.summary
    assert summary["unique_failures"] == len(unique)
    assert (summary["distinct_failures"], summary["distinct_failures_wide"]) == (len(near), len(far))
    assert summary["roots"] == len(roots)
    assert summary["suffix_failures"] == suffix
    assert summary["coverage"] == pytest.approx(len(cells) / 4 ** (2 * known.n_agents))
    index = np.concatenate([jfi(totals(e.rewards)) for _, e in result.folder.batches])
    assert summary["undefined"] == int(np.isnan(index).sum())
    assert summary["jfi_quantiles"]["0.5"] == pytest.approx(float(np.nanmedian(index)))
    assert len(near) < len(unique) or task == "foraging"


def slow_distance(a: list[Any], b: list[Any]) -> float:
    steps = max(len(a), len(b))
    a, b = a + [a[-1]] * (steps - len(a)), b + [b[-1]] * (steps - len(b))
    gaps = [
        ((p[0] - q[0]) ** 2 + (p[1] - q[1]) ** 2) ** 0.5
        for left, right in zip(a, b, strict=True)
        for p, q in zip(left, right, strict=True)
    ]
    return sum(gaps) / len(gaps)


def test_undefined_episodes_are_never_failures(found: Callable[[str], Result], tmp_path: Path) -> None:
    result = search(team("foraging"), chosen(theta=1.0), tmp_path / "run")
    assert result.summary["undefined"] > 50
    assert result.summary["failures"] + result.summary["undefined"] == result.summary["evaluated"]
    assert np.isfinite(result.failures["jfi"]).all()
    assert np.abs(result.failures["rewards"]).sum(axis=(1, 2)).min() > 0


def test_a_run_without_failures_has_an_empty_file(tmp_path: Path) -> None:
    result = search(team(), chosen(theta=0.001, method="random", budget=20), tmp_path / "run")
    assert result.summary["failures"] == 0
    assert len(load_failures(tmp_path / "run" / "failures.npz")) == 0


def test_a_damaged_failure_file_is_a_clear_error(whole: Result, tmp_path: Path) -> None:
    content = (whole.folder.path / "failures.npz").read_bytes()
    for name, damaged in (("cut", content[: len(content) // 2]), ("empty", b""), ("other", b"not an archive")):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(FairTestError, match="holds no failures"):
            load_failures(tmp_path / name)
    with pytest.raises(FairTestError, match="holds no failures"):
        load_failures(tmp_path / "nowhere")


# --- ablations and options ----------------------------------------------------------------------------


OPTIONS: list[dict[str, Any]] = [
    {"fitness": "f0"},
    {"fitness": ["f1", "f3"]},
    {"prioritise": False},
    {"fill": "fronts"},
    {"crossover_ratio": 0},
    {"generations": 0},
    {"execution": "softmax"},
    {"predictor_episodes": 0},
    {"index": "min_max", "theta": 0.4},
    {"index": "cv", "theta": "auto", "calibration_episodes": 30, "quantile": 0.2, "budget": 200},
]
FURTHER_OPTIONS: list[dict[str, Any]] = [
    {"fitness": ["f1"]},
    {"fitness": ["f2"]},
    {"fitness": ["f3"]},
    {"fitness": ["f1"], "select_ratio": 0.1},
    {"parents": "uniform"},
    {"tournament": 5},
    {"crossover_ratio": 2},
    {"rounds": 1, "select_ratio": 1.0},
    {"f3_temperature": 1.0},
    {"d": 5.0, "buckets": 3},
    {"index": "gini"},
]


@pytest.mark.parametrize(
    "changes", [*OPTIONS, *(pytest.param(further, marks=pytest.mark.slow) for further in FURTHER_OPTIONS)], ids=str
)
def test_every_option_runs_to_the_end(changes: dict[str, Any], tmp_path: Path) -> None:
    given = chosen(**changes)
    result = search(team(), given, tmp_path / "run")
    summary = result.summary
    assert summary["executed_episodes"] <= given.budget
    assert summary["failures"] > 0
    executed = Episodes.concatenate([episodes for _, episodes in result.folder.batches])
    index = INDICES[given.index](totals(executed.rewards))
    assert summary["failures"] == int((index <= summary["theta"]).sum())
    plan = planned(given)
    assert [len(e) for e in result.folder.executed("mutant")] == [plan.offspring] * (plan.rounds * plan.generations)


def first_parents(result: Result) -> set[int]:
    """Places in the candidate pool of the parents of the first mutants."""
    pool, mutants = result.folder.executed("candidate")[0], result.folder.executed("mutant")[0]
    return set((mutants.parent - pool.id[0]).tolist())


@pytest.mark.parametrize("changes", [{"fitness": "f0"}, {"fitness": ["f1"]}, {"prioritise": False}], ids=str)
def test_without_predictive_objectives_or_prioritisation_the_first_candidates_are_the_population(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    """Nothing may guide f0, not even the pre-filter of the prioritisation."""
    result = search(team(), chosen(budget=320, **changes), tmp_path / "run")
    size = planned(chosen(budget=320, **changes)).population
    assert first_parents(result) <= set(range(size))


def test_with_prioritisation_the_population_comes_from_the_whole_pool(tmp_path: Path) -> None:
    result = search(team(), chosen(budget=320), tmp_path / "run")
    assert max(first_parents(result)) >= planned(chosen(budget=320)).population


@pytest.mark.parametrize("changes", [{"execution": "greedy"}, {"epsilon": 0.0}], ids=str)
def test_a_greedy_team_executes_no_splices(changes: dict[str, Any], tmp_path: Path) -> None:
    result = search(team(), chosen(**changes), tmp_path / "run")
    assert "splice" not in result.summary["ledger"]
    assert "crossover" not in result.failures["operator"].tolist()


def test_a_training_sample_teaches_the_predictor(tmp_path: Path) -> None:
    result = search(replace(team(), sample=training_sample()), chosen(), tmp_path / "run")
    predictor = result.summary["predictor"]
    assert predictor["episodes"] == 40 + result.summary["ledger"]["predictor"]["episodes"]
    assert predictor["auc_full"] is not None


# --- a task that cannot be restored -------------------------------------------------------------------


class Brief(Drift):
    """Ends after 1 to 9 steps, as its seed says; most episodes are too short to breed from."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._left = 1 + (seed or 0) % 9 if (seed or 0) % 3 == 0 else 3
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        seen, paid, _, _, info = super().step(action)
        self._left -= 1
        return seen, paid, self._left <= 0, False, info


class Blank(Wanderers):
    """A team that values everything alike."""

    def forward(self, obs: Any, last: Any, hidden: Any) -> Any:
        return np.zeros((len(obs), 2, 3), np.float32), np.zeros((len(obs), 2, 0), np.float32)


def walkers(environment: type[Drift] = Drift, policy: type[Wanderers] = Wanderers, limit: int = 10) -> Team:
    task = GenericTask(environment())
    return Team(
        task=task,
        policy=policy(),  # type: ignore[arg-type]
        make_world=lambda: World(environment(), task, env_reward, limit=limit, obs_size=2),
        available=np.ones((2, 3), bool),
        limit=limit,
        origin={"policy_digest": "none"},
    )


def test_a_task_that_cannot_be_restored_is_searched_by_replaying_actions(tmp_path: Path) -> None:
    subject, steps = counted(walkers())
    given = chosen(theta=0.9, epsilon=0.3)
    result = search(subject, given, tmp_path / "run")
    assert result.summary["task"] == "generic"
    assert result.summary["executed_steps"] == 10 * result.summary["executed_episodes"]
    assert steps[0] == result.summary["executed_steps"] + steps_afterwards(result.summary)
    assert result.summary["failures"] > 0
    failures = load_failures(tmp_path / "run" / "failures.npz")
    assert (failures.operator > 0).any()
    tests = replay_tests(failures)
    tests.start_state[:], tests.prefix, tests.forced = np.nan, None, failures.actions
    how = ActionRule(given.execution, given.epsilon, 1.0, subject.available)
    again = Lockstep(subject.make_world, subject.policy, how, limit=10, state_size=4).execute(tests)
    assert jfi(totals(again.rewards)) == pytest.approx(result.failures["jfi"], abs=1e-9)


# --- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("theta", "kind"), [(0.01, "unfair"), (1.0, "fair")])
def test_labels_of_one_kind_make_f2_constant_and_the_search_goes_on(theta: float, kind: str, tmp_path: Path) -> None:
    result = search(team(), chosen(theta=theta), tmp_path / "run")
    assert f"hold no {kind} one" in result.said
    assert "f2 is constant" in result.said
    assert result.summary["predictor"]["auc_full"] is None
    assert result.summary["failures"] == (0 if kind == "unfair" else result.summary["evaluated"])
    assert result.summary["ledger"]["mutant"]["episodes"] == 40


def test_episodes_shorter_than_5_steps_are_judged_but_not_bred_from(tmp_path: Path) -> None:
    result = search(team(limit=4), chosen(), tmp_path / "run")
    assert "No executed episode of at least 5 steps" in result.said
    assert set(result.summary["ledger"]) == {"predictor", "candidate", "re-execution", "replay", "random_team"}
    assert result.summary["ledger"]["re-execution"]["episodes"] == 0
    assert result.summary["failures"] > 0


def test_a_pool_smaller_than_the_population_is_searched_as_it_is(tmp_path: Path) -> None:
    """Most candidates are too short: fewer are left than the population should have."""
    given = chosen(select_ratio=0.8, theta=0.9, budget=200, pool=30, offspring=12, epsilon=0.3)
    result = search(walkers(Brief), given, tmp_path / "run")
    pool = result.folder.executed("candidate")[0]
    left = int((pool.length >= 5).sum())
    assert 0 < left < planned(given).population
    mutants = result.folder.executed("mutant")[0]
    assert len(mutants) == 12
    assert set(mutants.parent.tolist()) <= set(pool.id[pool.length >= 5].tolist())


def test_a_population_as_large_as_the_pool_works(tmp_path: Path) -> None:
    result = search(team(), chosen(select_ratio=1.0), tmp_path / "run")
    assert result.summary["ledger"]["re-execution"]["episodes"] == result.summary["ledger"]["candidate"]["episodes"]


def test_one_joint_state_is_said_and_searched_all_the_same(tmp_path: Path) -> None:
    result = search(walkers(policy=Blank), chosen(theta=0.9, epsilon=0.5), tmp_path / "run")
    assert "one joint abstract state" in result.said
    assert result.summary["predictor"]["joint_states"] == 1
    assert result.summary["ledger"]["mutant"]["episodes"] == 40
    assert result.summary["notes"]["crossover_without_partner"] == 0


def test_perturbations_that_are_always_refused_leave_a_search_without_mutants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = team()
    monkeypatch.setattr(
        subject.task, "perturb", lambda states, generator: (states, np.zeros(len(states), bool)), raising=False
    )
    result = search(subject, chosen(), tmp_path / "run")
    offspring = planned(chosen()).offspring
    assert result.summary["notes"]["mutations_refused"] == 4 * offspring
    assert result.summary["ledger"]["mutant"] == {"episodes": 0, "steps": 0}
    assert result.summary["ledger"]["splice"]["episodes"] > 0
    assert result.summary["failures"] > 0


def test_without_crossover_partners_the_search_goes_on_with_mutation(tmp_path: Path) -> None:
    """One generation: later ones find parents and their mutants, which share states to the last bit."""
    result = search(team(), chosen(d=1e-7, generations=1), tmp_path / "run")
    plan = planned(chosen(generations=1))
    assert result.summary["notes"]["crossover_without_partner"] == 2 * plan.splices // 2 > 0
    assert "splice" not in result.summary["ledger"]
    assert result.summary["ledger"]["mutant"]["episodes"] == 2 * plan.offspring


@pytest.mark.slow
def test_neither_partners_nor_perturbations_still_end_in_a_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = team()
    monkeypatch.setattr(
        subject.task, "perturb", lambda states, generator: (states, np.zeros(len(states), bool)), raising=False
    )
    for prioritise in (True, False):
        result = search(subject, chosen(d=1e-7, prioritise=prioritise), tmp_path / str(prioritise))
        assert result.summary["ledger"]["mutant"]["episodes"] == 0
        assert result.summary["failures"] > 0


@pytest.mark.parametrize("accounting", ACCOUNTINGS)
def test_a_budget_below_one_round_is_refused_before_anything_is_executed(accounting: str, tmp_path: Path) -> None:
    subject, steps = counted(team())
    with pytest.raises(FairTestError, match=r"budget=20 does not pay .* smallest workable budget .* \d+ episodes"):
        search(subject, chosen(budget=20, accounting=accounting), tmp_path / "run")
    assert steps == [0]


@pytest.mark.parametrize("method", every_method())
def test_a_budget_that_calibration_would_use_up_is_refused(method: str) -> None:
    with pytest.raises(FairTestError, match=r"budget=60 (does not pay|leaves nothing)"):
        check(chosen(method=method, theta="auto", calibration_episodes=60, budget=60))
    check(chosen(method=method, theta="auto", calibration_episodes=60, **PAPER))


@pytest.mark.parametrize("source", [THE_PAPERS, SCOUTED], ids=lambda source: source["candidates"])
@pytest.mark.parametrize("accounting", ACCOUNTINGS)
def test_the_smallest_workable_budget_really_works(accounting: str, source: dict[str, Any], tmp_path: Path) -> None:
    given = {**source, "accounting": accounting}
    with pytest.raises(FairTestError) as caught:
        check(chosen(**given, budget=1))
    smallest = int(str(caught.value).split(" with these settings is ")[1].split()[0])
    result = search(team(), chosen(**given, budget=smallest), tmp_path / "run")
    assert result.summary["ledger"]["mutant"]["episodes"] == 4 * SMALLEST[source["candidates"]]
    assert result.summary[f"charged_{accounting}"] <= smallest


# --- the golden run -----------------------------------------------------------------------------------


def same(pinned: Any, now: Any, where: str = "") -> None:
    """Whole numbers and words exactly, other numbers to 1e-9."""
    if isinstance(pinned, dict):
        assert pinned.keys() == now.keys(), where
        for name in pinned:
            same(pinned[name], now[name], f"{where}/{name}")
    elif isinstance(pinned, list):
        assert len(pinned) == len(now), where
        for number, value in enumerate(pinned):
            same(value, now[number], f"{where}/{number}")
    elif isinstance(pinned, float):
        assert now == pytest.approx(pinned, rel=1e-9, abs=1e-9), where
    else:
        assert now == pinned, where


@pytest.mark.usefixtures("as_shipped")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "scouted" else name for name in RUNS]
)
def test_the_golden_run_gives_the_pinned_summary(name: str, tmp_path: Path) -> None:
    """If this is meant to change: python tests/golden/regenerate.py"""
    same(json.loads(SUMMARY.read_text())[name], golden_run(name, tmp_path / "run"))


def test_a_budget_that_ends_within_a_round_still_executes_splices_where_that_is_free(tmp_path: Path) -> None:
    given = chosen(**{**PAPER, "pool": 60, "offspring": 16, "budget": 50, "rounds": 3})
    result = search(team(), given, tmp_path / "run")
    assert result.summary["charged_paper"] == 50
    assert result.summary["notes"]["splices"]["executed"] == result.summary["notes"]["splices"]["kept"] > 0


def test_a_round_that_nothing_is_left_for_does_not_begin(tmp_path: Path) -> None:
    given = chosen(**{**PAPER, "pool": 60, "offspring": 16, "budget": 88, "rounds": 3})
    result = search(team(), given, tmp_path / "run")
    assert result.summary["charged_paper"] == 88
    assert len(result.folder.executed("candidate")) == 2
