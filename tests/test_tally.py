"""What is counted: failures that differ, however many there are and wherever they began; and what they cover."""

from __future__ import annotations

import weakref
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import environment

from benchmarks.cheats import cheat
from epymarl_fairtest.campaign import packing
from epymarl_fairtest.campaign.coverage import ALL, PAIRS, SINGLE, Coverage, maps_of
from epymarl_fairtest.campaign.packing import Packing, compiled, distances, plain
from epymarl_fairtest.campaign.tally import GROWTH_POINTS, Tally, growth
from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.generic.rules import Unplaced
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.team.saved import saved_team

PACKERS = pytest.mark.parametrize("pack", [compiled.pack, plain.pack], ids=["compiled", "plain"])


def slow_distance(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Mean distance of the agents; the shorter trajectory waits where it ended."""
    gaps = []
    for step in range(max(len(a), len(b))):
        here, there = a[min(step, len(a) - 1)], b[min(step, len(b) - 1)]
        gaps += [float(np.hypot(*(mine - other))) for mine, other in zip(here, there, strict=True)]
    return sum(gaps) / len(gaps)


def some_paths(count: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Paths in a few bundles, some of them twice, of different lengths."""
    generator = np.random.default_rng(seed)
    base = generator.normal(size=(12, 1, 3, 2)) * 0.5
    moves = np.cumsum(generator.normal(size=(count, 40, 3, 2)) * 0.05, axis=1)
    paths = (base[generator.integers(12, size=count)] + moves).astype(np.float32)
    paths[1::7] = paths[0::7][: len(paths[1::7])]
    lengths = generator.integers(1, 41, count)
    lengths[1::7] = lengths[0::7][: len(lengths[1::7])]
    for path, length in zip(paths, lengths, strict=True):
        path[length:] = 99  # nobody may look there
    return paths, lengths


def test_distances_of_many_are_those_of_each_two() -> None:
    paths, lengths = some_paths(30, 0)
    cut = [path[:length] for path, length in zip(paths, lengths, strict=True)]
    apart = distances(paths, lengths)
    assert apart == pytest.approx(np.array([[slow_distance(a, b) for b in cut] for a in cut]), rel=1e-5, abs=1e-6)
    assert (apart == apart.T).all()


@cache
def slowly_kept(distance: float, count: int) -> list[bool]:
    kept: list[NDArray[np.float32]] = []
    found = []
    for path, length in zip(*some_paths(count, 1), strict=True):
        found.append(all(slow_distance(path[:length], other) > distance for other in kept))
        kept += [path[:length]] if found[-1] else []
    return found


@PACKERS
@pytest.mark.parametrize("distance", [0.0, 0.05, 0.3, 0.8])
def test_a_path_is_kept_if_it_is_far_from_all_that_were_kept(
    distance: float, pack: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "fastest_pack", lambda: pack)
    monkeypatch.setattr(packing, "FEW", 0)
    paths, lengths = some_paths(100, 1)
    expected = slowly_kept(distance, 100)
    together, steps, found = Packing(distance), 20, []
    for first in range(0, 100, 9):  # batches of few steps and of many
        part = slice(first, first + 9)
        steps = max(steps, int(lengths[part].max()))
        found += together.add(paths[part, :steps], lengths[part]).tolist()
    assert found == expected
    assert len(together) == sum(expected) < 100


def test_compiled_and_plain_packing_decide_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "FEW", 0)
    for seed, size in ((2, 1.0), (3, 1e9), (4, 1e-9)):
        paths, lengths = some_paths(200, seed)
        kept = []
        for pack in (compiled.pack, plain.pack):
            monkeypatch.setattr(packing, "fastest_pack", lambda pack=pack: pack)
            kept.append(Packing(0.3 * size).add(paths * np.float32(size), lengths).tolist())
        assert kept[0] == kept[1]
        assert 0 < sum(kept[0]) < 200


@pytest.mark.parametrize("distance", [0.0, 0.05, 0.3, 0.8])
@pytest.mark.parametrize("whole", [0.0, 0.5, 1.0])
def test_paths_sorted_into_cells_get_the_numbers_of_paths_compared_with_each(
    distance: float, whole: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some or all of them last as long as any does; the others are in no cell."""
    monkeypatch.setattr(packing, "FEW", 0)
    paths, lengths = some_paths(400, 5)
    chosen = np.random.default_rng(6).random(400) < whole
    lengths[chosen] = 40
    paths[paths == 99] = 0.5
    found = []
    for pack, at_once in ((plain.pack, 30), (compiled.pack, 30), (compiled.pack, 400)):
        monkeypatch.setattr(packing, "fastest_pack", lambda pack=pack: pack)
        together, parts = Packing(distance), [slice(i, i + at_once) for i in range(0, 400, at_once)]
        found.append([number for part in parts for number in together.sort(paths[part], lengths[part]).tolist()])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("bodies", [1, 2, 5])
@pytest.mark.parametrize("away", [0.0, 1e4])
def test_paths_of_few_bodies_of_many_and_far_away_are_packed_alike(
    bodies: int, away: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bodies are added up in three groups, in float32, which is less exact than the distance where `away` is large."""
    monkeypatch.setattr(packing, "FEW", 0)
    paths, lengths = some_paths(600, 8)
    lengths[::2] = 40
    paths[paths == 99] = 0.5
    paths = paths[:, :, np.arange(bodies) % 3] + np.float32(away)
    found = []
    for pack in (plain.pack, compiled.pack):
        monkeypatch.setattr(packing, "fastest_pack", lambda pack=pack: pack)
        together = Packing(0.2)
        found.append([n for i in range(0, 600, 50) for n in together.sort(paths[i : i + 50], lengths[i : i + 50])])
        assert 1 < len(together) < 600
    assert found[0] == found[1]


def test_coordinates_that_grow_make_the_cells_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far away, sums are less exact, and near paths may seem further apart than the cells are wide."""
    monkeypatch.setattr(packing, "FEW", 0)
    paths, lengths = some_paths(200, 7)
    lengths[:] = 40
    paths[paths == 99] = 0.5
    paths[100:] *= np.float32(1e6)
    found, widths = [], []
    for pack in (plain.pack, compiled.pack):
        monkeypatch.setattr(packing, "fastest_pack", lambda pack=pack: pack)
        together = Packing(1e-5)
        for first in range(0, 200, 50):
            found.append(together.sort(paths[first : first + 50], lengths[first : first + 50]).tolist())
            widths.append(together._cells.width if together._cells else 0.0)
    assert found[:4] == found[4:]
    assert 2 * max(widths[4:6]) < widths[6]


def test_nothing_is_compiled_for_few_paths_and_many_are_packed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    paths, lengths = some_paths(200, 2)
    parts = [slice(first, first + 20) for first in range(0, 200, 20)]
    found: dict[int, list[int]] = {}
    for few in (0, 70, 200):
        monkeypatch.setattr(packing, "FEW", few)
        if few == 200:
            monkeypatch.setattr(packing, "fastest_pack", lambda: pytest.fail("too few to compile for"))
        together = Packing(0.3)
        found[few] = [number for part in parts for number in together.sort(paths[part], lengths[part]).tolist()]
    assert found[0] == found[70] == found[200]


def test_many_paths_are_packed_by_the_compiled_packing_however_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "FEW", 50)
    packs: list[int] = []
    monkeypatch.setattr(packing, "fastest_pack", lambda: packs.append(len(together)) or compiled.pack)
    paths, lengths = some_paths(200, 2)
    together = Packing(100.0)
    for first in range(0, 200, 20):
        together.add(paths[first : first + 20], lengths[first : first + 20])
    assert packs == [1] * 8, "all but the first two parts"


@cache
def trained() -> tuple[Team, Engine]:
    team = saved_team(shipped("policies") / "mpe-iql", "env")
    return team, make_engine(team, configure({"engine": "twin"}), print)


@pytest.mark.parametrize(("noise", "distinct", "wide"), [(1e-6, 12, 4), (0.15, 84, 8)])
def test_near_copies_of_one_failing_start_are_few_different_failures(noise: float, distinct: int, wide: int) -> None:
    """Each has a root of its own: counted within a root, every copy would be a different failure."""
    found = cheat(*trained(), noise, 300)
    assert found["failures"] == found["unique_failures"] == found["roots"] > 50
    assert found["distinct_failures_wide"] <= wide < found["distinct_failures_wide"] + found["distinct_failures"]
    assert found["distinct_failures"] <= distinct
    assert (found["distinct_starts"] == 1) == (noise < 0.1)


def test_nothing_keeps_the_states_of_a_batch_that_was_counted() -> None:
    """A view of the first ones would: at ten times the paper's budget that was half of the memory."""
    team, engine = trained()
    judge = Judge(INDICES["jfi"], 0.9)
    tally = Tally(team.task, judge, bins=4, distinct_distance=team.task.distinct_distance)
    episodes = engine.execute(random_tests(20, team.task.state_size, np.random.default_rng(0)))
    states = weakref.ref(episodes.states)
    tally.add(judge(episodes), "execution")
    del episodes
    assert states() is None


def test_failures_of_a_task_without_positions_differ_by_their_root() -> None:
    team, engine = trained()
    episodes = engine.execute(random_tests(20, team.task.state_size, np.random.default_rng(0)))
    episodes.states = episodes.states[..., :0]
    judge = Judge(INDICES["jfi"], 1.0)
    tally = Tally(Unplaced(3, 0), judge, bins=4, distinct_distance=0.0)
    tally.add(judge(episodes), "execution")
    found = tally.summary()
    names = ("failures", "distinct_failures", "distinct_failures_wide", "distinct_starts", "roots")
    assert {found[name] for name in names} == {20}


# --- growth -------------------------------------------------------------------------------------------


def slow_growth(executed: list[int], failing: list[int], distinct: list[int]) -> dict[str, Any]:
    """Episode by episode: what was known after each."""
    known = [(sum(f <= number for f in failing), sum(d <= number for d in distinct)) for number in executed]
    points = sorted({int(len(executed) * part / GROWTH_POINTS) for part in range(1, GROWTH_POINTS + 1)})
    tenth = [after for after, (_, count) in enumerate(known, 1) if count >= 10]
    return {
        "growth": {
            "episodes": points,
            "failures": [known[point - 1][0] if point else 0 for point in points],
            "distinct_failures": [known[point - 1][1] if point else 0 for point in points],
        },
        "distinct_area": sum(count for _, count in known) / max(len(executed), 1),
        "tenth_distinct_failure": tenth[0] if tenth else None,
    }


@pytest.mark.parametrize("count", [0, 1, 3, 19, 20, 21, 257])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_growth_is_what_is_known_after_each_episode(count: int, rate: float) -> None:
    generator = np.random.default_rng(count)
    executed = 5 + np.arange(count)
    failing = executed[generator.random(count) < rate]
    distinct = failing[generator.random(len(failing)) < 0.5]
    found = growth(executed, failing, distinct)
    expected = slow_growth(executed.tolist(), failing.tolist(), distinct.tolist())
    assert found["distinct_area"] == pytest.approx(expected.pop("distinct_area"))
    assert {name: found[name] for name in expected} == expected


def test_of_two_searches_that_end_alike_the_earlier_one_has_the_larger_area() -> None:
    executed = np.arange(100)
    early, late = (growth(executed, found, found) for found in (np.arange(20), np.arange(80, 100)))
    assert early["growth"]["distinct_failures"][-1] == late["growth"]["distinct_failures"][-1] == 20
    assert early["distinct_area"] > 4 * late["distinct_area"]
    assert (early["tenth_distinct_failure"], late["tenth_distinct_failure"]) == (10, 90)


@pytest.mark.parametrize("placed", [True, False], ids=["placed", "unplaced"])
def test_a_tally_grows_to_the_counts_it_gives_whatever_the_batches_and_without_what_is_left_out(placed: bool) -> None:
    team, engine = trained()
    task: Any = team.task if placed else Unplaced(3, 0)
    judge = Judge(INDICES["jfi"], 0.9)
    judged = judge(engine.execute(random_tests(120, team.task.state_size, np.random.default_rng(2))))
    judged.episodes.id[:] = np.arange(120)
    judged.episodes.root_seed[60:90] = judged.episodes.root_seed[:30]
    if not placed:
        judged.episodes.states = judged.episodes.states[..., :0]
    grown = []
    for size in (7, 120):
        tally = Tally(task, judge, bins=4, distinct_distance=team.task.distinct_distance)
        for first in range(0, 120, size):
            tally.add(judged.take(slice(first, first + size)), "execution")
        summary = tally.summary()
        grown.append({name: summary[name] for name in ("growth", "distinct_area", "tenth_distinct_failure")})
        for name in ("failures", "distinct_failures"):
            assert grown[-1]["growth"][name][-1] == summary[name] > 10
    assert grown[0] == grown[1]
    failing = np.flatnonzero(judged.unfair)
    tally.leave_out(failing[:5], [judged.episodes.take(failing[5:])])
    assert tally.summary()["growth"]["failures"][-1] == len(failing) - 5


# --- coverage -----------------------------------------------------------------------------------------


class Placed:
    """A task of which only the places of its agents matter."""

    def __init__(self, agents: int) -> None:
        self.n_agents, self.state_size = agents, 2 * agents
        self.low, self.high = -1.0, 1.0

    def positions(self, states: Any) -> Any:
        return states.reshape(*states.shape[:-1], self.n_agents, 2)


def placed(agents: int) -> Any:
    known = task_for(environment("spread"))
    methods = {name: getattr(type(known), name) for name in ("places", "cells", "cell_count")}
    return type("Many", (Placed,), methods)(agents)


@pytest.mark.parametrize(
    ("agents", "bins", "of"),
    [(3, 4, ALL), (3, 16, ALL), (6, 4, ALL), (7, 4, PAIRS), (16, 4, PAIRS), (20, 8, PAIRS), (20, 64, SINGLE)],
)
def test_coverage_is_of_as_many_agents_as_leave_it_a_meaning(agents: int, bins: int, of: str) -> None:
    states = np.random.default_rng(0).uniform(-1.1, 1.1, (50, 2 * agents))
    coverage = Coverage(placed(agents), bins)
    coverage.add(states)
    digit = np.clip(((states + 1) / 2 * bins).astype(int), 0, bins - 1).reshape(50, agents, 2)
    groups = list(combinations(range(agents), {ALL: agents, PAIRS: 2, SINGLE: 1}[of]))
    shares = [len({row.tobytes() for row in digit[:, group]}) / bins ** (2 * len(group)) for group in groups]
    assert coverage.of == of
    assert coverage.share() == pytest.approx(np.mean(shares))
    if bins < 16:
        maps = maps_of(coverage.cells(), of, agents, bins)
        assert maps.shape == (agents, bins, bins)
        mine = [share for share, group in zip(shares, groups, strict=True) if 0 in group]
        assert maps[0].mean() == pytest.approx(np.mean(mine))
        there = digit[0, 0]
        cells = [{row.tobytes() for row in digit[:, g] if (row[0] == there).all()} for g in groups if g[0] == 0]
        assert maps[0][tuple(there)] == pytest.approx(
            np.mean([len(cell) / bins ** (2 * len(groups[0]) - 2) for cell in cells])
        )


def test_cells_of_more_agents_than_numbers_can_tell_are_told_apart() -> None:
    many = placed(20)
    states = np.random.default_rng(0).uniform(-1, 1, (500, 40))
    states[250:] = states[:250]
    cells = many.cells(states, 8)
    assert (cells >= 0).all()
    assert (cells[:250] == cells[250:]).all()
    assert len(np.unique(cells)) == 250
    swapped = states[:, ::-1].copy()
    assert not np.isin(many.cells(swapped, 8), cells).any()
