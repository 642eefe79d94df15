"""The two opponents of our own: what they ask for, and that each wins on what it is meant to win on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import engine_of, environment

from epymarl_fairtest.campaign.loop import Campaign
from epymarl_fairtest.campaign.tally import Tally
from epymarl_fairtest.core.episodes import OPERATORS, Episodes, Tests, empty_episodes
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import Judge, Judged
from epymarl_fairtest.core.ledger import Ledger
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.strategies import configure, strategy_of
from epymarl_fairtest.strategies.contract import Context
from epymarl_fairtest.strategies.hill_climber import most_unfair
from epymarl_fairtest.strategies.start_surrogate import fitted, learned
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.contract import Task
from epymarl_fairtest.tasks.generic.rules import GenericTask
from epymarl_fairtest.tasks.spread.rules import SpreadTask
from epymarl_fairtest.team.saved import saved_team

pytestmark = pytest.mark.slow  # an opponent changes rarely; `make test` has its contract (test_contracts.py)

METHODS = ("random", "hill_climber", "start_surrogate")


@dataclass
class Run:
    """What a campaign executed, batch by batch, and what it counted."""

    context: Context
    tally: Tally
    ledger: Ledger = field(default_factory=Ledger)
    batches: list[tuple[str, Judged]] = field(default_factory=list)

    def load_batch(self, number: int) -> None:
        return None

    def save_batch(self, number: int, purpose: str, judged: Judged) -> None:
        self.batches.append((purpose, judged))

    def executed(self, name: str) -> NDArray[Any]:
        return np.concatenate([getattr(judged.episodes, name) for _, judged in self.batches])

    @property
    def sizes(self) -> list[tuple[str, int]]:
        return [(purpose, len(judged)) for purpose, judged in self.batches]


def search(
    method: str, engine: Any, task: Task, *, budget: int, seed: int = 3, workers: int = 1, **options: Any
) -> Run:
    account = {"method": method, "budget": budget, "accounting": "strict", "workers": workers}
    given = configure({**account, "batch": 500, "options": options})
    strategy, judge, available = strategy_of(given), Judge(jfi, task.theta), np.ones((task.n_agents, 5), bool)
    chosen = strategy.chosen(given)
    context = Context(task, given, seed, judge, available, options=chosen, initial_states=engine.initial_states)
    run = Run(context, Tally(task, judge, bins=4, distinct_distance=task.distinct_distance))
    Campaign(strategy, context, engine, run, run.tally, run.ledger).run()
    return run


# --- a world in which the start decides ---------------------------------------------------------------


class Fated:
    """An engine without a team: what three agents receive depends on the seed's start alone."""

    name = "fated"
    task = SpreadTask(environment("spread"))

    def __init__(self, receives: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> None:
        self._receives = receives
        self.looked_at: list[NDArray[np.int64]] = []

    def initial_states(self, seeds: NDArray[np.int64]) -> NDArray[np.float64]:
        self.looked_at.append(seeds)
        return np.stack([np.random.default_rng(seed).uniform(-1, 1, self.task.state_size) for seed in seeds])

    def execute(self, tests: Tests) -> Episodes:
        episodes = empty_episodes(tests, limit=2, agents=3, actions=5, state_size=self.task.state_size, obs_size=1)
        seen, self.looked_at = self.looked_at, []
        start = self.initial_states(tests.root_seed)
        self.looked_at = seen
        episodes.states[:, 0] = np.where(tests.from_seed[:, None], start, tests.start_state)
        episodes.rewards[:, 1] = self._receives(episodes.states[:, 0])
        episodes.length[:] = 2
        return episodes


def nothing(starts: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.zeros((len(starts), 3))


def uneven_on_the_left(starts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first agent receives little if it starts far to the left."""
    received = np.ones((len(starts), 3))
    received[:, 0] = np.clip(starts[:, 0] + 0.9, 0, 1)
    return received


# --- hill climber -------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["spread", "foraging"])
@pytest.mark.parametrize("batch", [1, 8])
def test_every_batch_of_children_has_the_most_unfair_episode_so_far_as_its_parent(task: str, batch: int) -> None:
    budget = 40 + 6 * batch
    run = search("hill_climber", engine_of(task), task_for(environment(task)), budget=budget, initial=40, batch=batch)
    assert run.sizes == [("execution", 40)] + 6 * [("mutant", batch)]
    best, lowest = -1, np.inf
    for purpose, judged in run.batches:
        episodes, index = judged.episodes, judged.index
        if purpose == "mutant":
            assert set(episodes.parent) == {best}
            assert {OPERATORS[code] for code in episodes.operator} == {"mutation"}
        if np.nanmin(index) <= lowest:  # a child replaces a parent that it equals
            best, lowest = int(episodes.id[np.nanargmin(index)]), float(np.nanmin(index))
    assert run.ledger.charged("strict") == run.ledger.charged("paper") == budget


def test_a_climb_does_not_leave_its_root() -> None:
    run = search("hill_climber", engine_of("spread"), task_for(environment("spread")), budget=100, initial=20, batch=10)
    (_, initial), *climb = run.batches
    best = initial.episodes.root_seed[initial.index.argmin()]
    assert {seed for _, judged in climb for seed in judged.episodes.root_seed} == {best}


def test_it_climbs_from_no_episode_without_an_index() -> None:
    run = search("hill_climber", Fated(nothing), Fated.task, budget=50, initial=20, batch=5)
    assert run.sizes == [("execution", 20), ("execution", 20), ("execution", 10)]
    assert len(set(run.executed("root_seed").tolist())) == 50


def test_an_undefined_child_never_replaces_its_parent() -> None:
    run = search("hill_climber", Fated(uneven_on_the_left), Fated.task, budget=10, initial=10)
    _, judged = run.batches[0]
    episodes = judged.episodes
    (best,) = most_unfair(judged).episodes.id
    episodes.rewards[episodes.id != best] = 0.0
    assert most_unfair(run.context.judge(episodes)).episodes.id.tolist() == [best]


def test_where_nothing_can_be_mutated_it_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpreadTask, "perturb", lambda self, states, rng: (states, np.zeros(len(states), bool)))
    run = search("hill_climber", Fated(uneven_on_the_left), Fated.task, budget=60, initial=20, batch=4)
    assert [purpose for purpose, _ in run.batches] == 3 * ["execution"]
    assert run.context.notes == {"mutations_refused": 3 * 4, "restarts": 3}


def test_it_is_refused_where_states_cannot_be_restored() -> None:
    chosen = configure({"method": "hill_climber"})
    strategy_of(chosen).check_settings(chosen, task_for(environment("spread")))
    with pytest.raises(FairTestError, match=r"needs states that can be written back.*'generic'"):
        strategy_of(chosen).check_settings(chosen, GenericTask(environment("spread")))


# --- start surrogate ----------------------------------------------------------------------------------


def test_its_proposals_are_far_more_often_unfair_than_its_exploration() -> None:
    engine = Fated(uneven_on_the_left)
    run = search("start_surrogate", engine, Fated.task, budget=400, initial=100, refit=100, sample=10, explore=0.2)
    _, *later = run.batches
    proposed = np.concatenate([judged.index[:80] for _, judged in later])
    explored = np.concatenate([judged.index[80:] for _, judged in later])
    assert run.sizes[1:] == 3 * [("execution", 100)]
    theta = run.context.theta
    assert (proposed <= theta).mean() > 4 * max((explored <= theta).mean(), 0.05)


def test_what_is_executed_was_looked_at_and_nothing_else_is_charged() -> None:
    engine = Fated(uneven_on_the_left)
    run = search("start_surrogate", engine, Fated.task, budget=160, initial=100, refit=30, sample=7, explore=0.1)
    first, second, *_ = engine.looked_at  # once more before it hears that the budget is spent
    assert len(first) == len(second) == 30 * 7
    for seeds, (_, judged) in zip((first, second), run.batches[1:], strict=True):
        executed = judged.episodes.root_seed
        assert set(executed) <= set(seeds)
        assert executed[27:].tolist() == seeds[:3].tolist()  # the explored ones: drawn first
    assert run.ledger.episodes == {"execution": 160}


@pytest.mark.parametrize(("explore", "sample"), [(0.0, 1), (1.0, 1), (1.0, 5), (0.5, 1)])
def test_any_share_of_exploration_and_any_sample_work(explore: float, sample: int) -> None:
    run = search(
        "start_surrogate", Fated(uneven_on_the_left), Fated.task, budget=45,
        initial=20, refit=10, sample=sample, explore=explore, trees=5,
    )  # fmt: skip
    assert [size for _, size in run.sizes] == [20, 10, 10, 5]
    assert len(set(run.executed("root_seed").tolist())) == 45


def test_its_batches_grow_with_what_was_executed() -> None:
    run = search(
        "start_surrogate", Fated(uneven_on_the_left), Fated.task, budget=240, initial=195, refit=5, sample=2, trees=5
    )
    assert [size for _, size in run.sizes] == [195, 19, 21, 5]


def test_it_takes_an_undefined_episode_for_a_fair_one() -> None:
    run = search("start_surrogate", Fated(nothing), Fated.task, budget=30, initial=20, refit=10, sample=2, trees=5)
    starts, index = learned(run.batches[0][1])
    assert index.tolist() == 20 * [1.0]
    assert starts.tobytes() == run.batches[0][1].episodes.states[:, 0].tobytes()


@pytest.mark.slow
def test_threads_do_not_change_what_it_asks_for() -> None:
    one, two = (
        search(
            "start_surrogate",
            Fated(uneven_on_the_left),
            Fated.task,
            budget=200,
            initial=100,
            workers=workers,
            sample=20,
        )
        for workers in (1, 2)
    )
    assert one.executed("root_seed").tolist() == two.executed("root_seed").tolist()
    assert one.executed("stream").tolist() == two.executed("stream").tolist()
    # Answers that threads add up differ in the last bit, and only sometimes: no thread may be asked.
    assert fitted(*learned(two.batches[0][1]), two.context).n_jobs == 1


def test_a_task_that_tells_nothing_of_its_states_is_refused() -> None:
    task = GenericTask(environment("spread"))
    task.state_size = 0  # as where observations are not arrays
    with pytest.raises(FairTestError, match=r"start_surrogate.*'generic'.*method=random"):
        search("start_surrogate", engine_of("spread"), task, budget=30)


# --- what they are there to show ----------------------------------------------------------------------


@pytest.mark.slow
def test_on_a_trained_team_the_climber_wins_the_count_and_the_surrogate_wins_the_roots() -> None:
    subject = saved_team(shipped("policies") / "mpe-qmix", "env")
    engine = make_engine(subject, configure({}), pytest.fail)
    found = {method: search(method, engine, subject.task, budget=1000).tally.summary() for method in METHODS}
    random, climber, surrogate = (found[name] for name in ("random", "hill_climber", "start_surrogate"))
    assert random["failures"] > 10
    assert climber["failures"] > 5 * random["failures"]
    assert climber["roots"] < random["roots"]
    assert surrogate["roots"] == surrogate["failures"] > 2 * random["roots"]
    assert surrogate["coverage"] > random["coverage"]
