"""MAP-Elites: the archive against a dictionary, the measures against slow sums, and what refused solutions do."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support import engine_of, environment
from test_own_baselines import Fated, Run, nothing, search, uneven_on_the_left

from epymarl_fairtest.commands import main
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.judged import Judged
from epymarl_fairtest.strategies import STRATEGIES, configure, strategy_of
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.spread.rules import SpreadTask

pytestmark = pytest.mark.slow  # an opponent changes rarely; `make test` has its contract (test_contracts.py)

needs_ribs = pytest.mark.skipif(bool(STRATEGIES["map_elites"].missing), reason="ribs is not installed")
map_elites = sys.modules["epymarl_fairtest.strategies.map_elites"]
EMITTERS = ("gaussian", pytest.param("improvement", marks=pytest.mark.slow))  # it is compiled for six seconds


@pytest.fixture
def archives(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The archives of all searches to come."""
    made: list[Any] = []
    original = map_elites.Elites.__init__

    def listening(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        made.append(self.archive)

    monkeypatch.setattr(map_elites.Elites, "__init__", listening)
    return made


def slow_archive(run: Run, cells: int) -> dict[tuple[int, ...], float]:
    """The best objective per cell of everything that was executed."""
    first = slow_measures(run.batches[0][1])
    low, high = np.min(first, axis=0), np.max(first, axis=0)
    best: dict[tuple[int, ...], float] = {}
    for _, judged in run.batches:
        for at, index in zip(slow_measures(judged), judged.index, strict=True):
            digits = np.floor((np.array(at) - low) / np.where(high > low, high - low, 1.0) * cells + 1e-6)
            cell = tuple(np.clip(digits, 0, cells - 1).astype(int).tolist())
            best[cell] = max(best.get(cell, -np.inf), -1.0 if np.isnan(index) else -float(index))
    return best


def slow_measures(judged: Judged) -> list[list[float]]:
    episodes, found = judged.episodes, []
    for row in range(len(judged)):
        length = int(episodes.length[row])
        at = Fated.task.positions(episodes.states[row, : length + 1])
        apart = [float(np.linalg.norm(p - team.mean(axis=0))) for team in at for p in team]
        paces = [
            sum(float(np.linalg.norm(at[t + 1, agent] - at[t, agent])) for t in range(length)) / length
            for agent in range(at.shape[1])
        ]
        received = episodes.rewards[row].sum(axis=0)
        found.append([sum(apart) / len(apart), paces[int(received.argmin())], paces[int(received.argmax())]])
    return found


@needs_ribs
@pytest.mark.parametrize("emitter", EMITTERS)
@pytest.mark.slow
def test_the_archive_holds_the_most_unfair_start_of_every_cell(emitter: str, archives: list[Any]) -> None:
    task = task_for(environment("spread"))
    run = search("map_elites", engine_of("spread"), task, budget=150, initial=60, batch=16, cells=4, emitter=emitter)
    (archive,) = archives
    expected = slow_archive(run, 4)
    kept = archive.data()
    found = {
        tuple(cell): float(goal)
        for cell, goal in zip(archive.int_to_grid_index(kept["index"]).tolist(), kept["objective"], strict=True)
    }
    assert found == pytest.approx(expected)
    assert run.context.notes["elites"] == len(expected) > 5
    assert np.isfinite(kept["measures"]).all()


@needs_ribs
@pytest.mark.parametrize("short", [1, 7, 25])
def test_measures_end_with_the_episode_and_are_numbers(short: int) -> None:
    task = task_for(environment("spread"))
    _, judged = search("random", engine_of("spread"), task, budget=6).batches[0]
    episodes = judged.episodes
    episodes.length[:] = short
    episodes.states[:, short + 1 :] = np.nan
    measured = map_elites.measures(replace(judged, episodes=episodes), task)
    assert measured == pytest.approx(np.array(slow_measures(judged)), rel=1e-9)
    assert np.isfinite(measured).all()


@needs_ribs
def test_an_episode_in_which_nobody_receives_anything_counts_as_fair(archives: list[Any]) -> None:
    search("map_elites", Fated(nothing), Fated.task, budget=40, initial=20)
    assert set(archives[0].data("objective").tolist()) == {-1.0}


@needs_ribs
@pytest.mark.parametrize("emitter", EMITTERS)
def test_it_becomes_unfairer_as_it_goes_on(emitter: str) -> None:
    engine = Fated(uneven_on_the_left)
    run = search("map_elites", engine, Fated.task, budget=600, initial=100, emitter=emitter)
    index = np.concatenate([judged.index for _, judged in run.batches])
    assert index[-200:].mean() < index[:100].mean()


@needs_ribs
@pytest.mark.parametrize("emitter", EMITTERS)
def test_refused_solutions_are_neither_executed_nor_kept(
    emitter: str, archives: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    original, accepted = SpreadTask.starts_from, set()

    def half(self: Any, vectors: Any) -> Any:
        states, valid = original(self, vectors)
        valid &= np.arange(len(valid)) % 2 == 0
        accepted.update(state.tobytes() for state in states[valid])
        return states, valid

    monkeypatch.setattr(SpreadTask, "starts_from", half)
    run = search("map_elites", Fated(uneven_on_the_left), Fated.task, budget=150, initial=30, batch=8, emitter=emitter)
    proposed = np.concatenate([judged.episodes.states[:, 0] for _, judged in run.batches[1:]])
    assert {state.tobytes() for state in proposed} <= accepted
    assert run.context.notes["invalid_starts"] > 0
    assert (archives[0].data("objective") > map_elites.REFUSED).all()
    assert run.ledger.charged("strict") == 150


@needs_ribs
def test_where_every_solution_is_refused_random_starts_are_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse = lambda self, v: (np.zeros((len(v), 18)), np.zeros(len(v), bool))  # noqa: E731
    monkeypatch.setattr(SpreadTask, "starts_from", refuse)
    run = search("map_elites", Fated(uneven_on_the_left), Fated.task, budget=50, initial=20, batch=10)
    assert run.sizes == [("execution", 20)] + 3 * [("execution", 10)]
    assert len(set(run.executed("root_seed").tolist())) == 50


# --- without pyribs -----------------------------------------------------------------------------------


@pytest.fixture
def without_ribs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ribs", None)


@pytest.mark.usefixtures("without_ribs")
def test_without_ribs_it_is_refused_with_the_command_that_installs_it() -> None:
    chosen = configure({"method": "map_elites"})
    with pytest.raises(FairTestError, match=r"'map_elites' needs ribs, which is not installed here: pip install ribs$"):
        strategy_of(chosen).check_settings(chosen)


@pytest.mark.usefixtures("without_ribs")
def test_without_ribs_everything_else_works(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--help"])
    assert ended.value.code == 0
    assert "map_elites" in capsys.readouterr().out
    main(["doctor"])
    assert "ribs" not in capsys.readouterr().out
    chosen = configure({"method": "mdpfuzz"})
    strategy_of(chosen).check_settings(chosen, Fated.task)
