"""The numbers of a run's page. Knows numpy and scipy, no plotting and no HTML.

Random executions show the team as it is, from starts that nobody chose. Only they tell how often it is unfair;
everything else was looked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.coverage import ALL, maps_of
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.statistics import Rate, mean_error
from epymarl_fairtest.core.worst_off import NATURAL, STARTS, WorstOff, votes, worst_off
from epymarl_fairtest.store.finished import Columns, FinishedRun
from epymarl_fairtest.store.read import damaged
from epymarl_fairtest.tasks import TASKS
from epymarl_fairtest.tasks.contract import MOST_NUMBERS

Floats = NDArray[np.float64]
MOST_POINTS = 3000  # of all scatter plots together
MOST_ROUNDS = 6


@dataclass(frozen=True)
class Histogram:
    edges: Floats  # theta is one of them
    everything: Floats  # share of the episodes in each bin (a, b]; undefined ones are in none
    random: Floats | None  # the same of the random executions


@dataclass(frozen=True)
class Group:
    """How a set of episodes shares what is received; episodes without any sum are left out of `share`."""

    name: str
    episodes: int
    received: Floats  # mean per agent
    share: Floats  # mean of |x_i| / sum |x|, per agent
    worst_off: Floats  # share of the episodes in which the agent receives least; of those that tie, each does
    ranked: Floats  # mean share of the worst off, the next, ... the best off
    left_behind: int  # episodes in which the lowest is further from the next than the highest is
    favoured: int  # and the other way round
    received_error: Floats  # half of the 95% interval of each mean above; NaN where there is a single episode
    share_error: Floats
    ranked_error: Floats


@dataclass(frozen=True)
class Growth:
    """Starts with a failure, found after so many executed episodes."""

    episodes: NDArray[np.int64]
    starts: NDArray[np.int64]
    total: int  # starts
    phases: list[tuple[str, int, int, bool]]  # purpose, first and last episode, random executions


@dataclass(frozen=True)
class Round:
    number: int
    candidates: Floats  # (n, 2): f2, f3; thinned
    population: Floats  # thinned
    front: Floats  # ascending in f2
    counts: tuple[int, int]  # candidates and population before thinning
    unfair: tuple[int, int] | None  # of the candidates and of the population


@dataclass(frozen=True)
class Coverage:
    bins: int
    cells: int
    total: int
    maps: Floats  # (agents, bins, bins): share of the joint cells of (first, second coordinate) that is covered
    placed: bool  # are the positions places?
    grid: bool  # rows and columns instead of x and y
    of: str  # which agents share a grid


@dataclass(frozen=True)
class Link:
    """One episode in the line of descent of a failure."""

    id: int
    operator: str
    step: int
    index: float


@dataclass(frozen=True)
class View:
    record: FinishedRun
    places: list[int]  # of the judged agents among the environment's, from 0
    index_name: str
    legend: str  # what a drawing shows besides the agents
    rate: Rate | None  # unfair among the random executions
    undefined: int  # random executions in which nobody received anything
    quantile: float | None  # share of the defined random executions at or below theta
    sign: str  # of what is received: "negative", "positive", "mixed"
    histogram: Histogram | None
    worst: WorstOff
    groups: list[Group]  # random executions and failures, as far as there are any
    growth: Growth | None
    rounds: list[Round]
    rounds_in_all: int
    coverage: Coverage | None
    table: dict[str, Any]
    missing: dict[str, str]  # section -> why it is not there

    @property
    def theta(self) -> float:
        return self.record.theta

    @property
    def searched(self) -> bool:
        """Is any execution one that was not random, as far as they are on record?"""
        return not len(self.record.random) or not self.record.random.all()

    @property
    def agents(self) -> int:
        return len(self.places)

    @property
    def summary(self) -> dict[str, Any]:
        """The run's, with the natural rate that an earlier run's does not hold."""
        rate = None if self.rate is None else {"rate": self.rate.estimate}
        return {"natural_rate": rate, **self.record.summary}


def view_of(record: FinishedRun) -> View:
    """Everything the page says, except for the replays."""
    executions, failures = record.executions, record.failures
    worst, groups = who_of(record)
    rounds, task = rounds_of(record), TASKS.get(str(record.summary.get("task")))
    received = executions["received"] if len(executions["id"]) else failures.get("received", np.empty((0, 0)))
    view = View(
        record=record,
        places=judged_places(record, received.shape[-1]),
        index_name=INDICES[record.settings["index"]].label,
        legend=task.legend if task is not None else "",
        rate=record.natural_rate(),
        undefined=int(np.isnan(record.random_executions["index"]).sum()),
        quantile=quantile_of(record),
        sign=sign_of(received),
        histogram=histogram_of(record),
        worst=worst,
        groups=groups,
        growth=growth_of(record),
        rounds=rounds[:MOST_ROUNDS],
        rounds_in_all=len(rounds),
        coverage=coverage_of(record),
        table=table_of(failures),
        missing={},
    )
    view.missing.update(missing_of(view))
    return view


def judged_places(record: FinishedRun, columns: int) -> list[int]:
    """Of the agents whose rewards are on record in so many columns."""
    if isinstance(record.agents, str):
        return list(range(columns))
    if columns and columns != len(record.agents):
        why = f"it judges the agents {list(record.agents)}, and {columns} are on record"
        raise damaged(record.path / "manifest.json", why)
    return [agent - 1 for agent in record.agents]


# --- how often ----------------------------------------------------------------------------------------


def quantile_of(record: FinishedRun) -> float | None:
    index = record.random_executions["index"]
    defined = index[~np.isnan(index)]
    return float((defined <= record.theta).mean()) if len(defined) else None


def histogram_of(record: FinishedRun) -> Histogram | None:
    index, theta = record.executions["index"], record.theta
    if np.isnan(index).all():
        return None
    low = min(float(np.floor(np.nanmin(index) * 20) / 20), max(theta - 0.05, 0.0))
    width = max((1.0 - low) / 44, 1e-9)
    below = np.linspace(low, theta, max(round((theta - low) / width), 1) + 1)
    above = np.linspace(theta, 1.0, max(round((1.0 - theta) / width), 1) + 1)
    edges = np.unique(np.concatenate([below, above]))

    def shares(values: Floats) -> Floats:
        """Negated, numpy's bins [a, b) are (a, b]: an index of exactly theta is unfair."""
        defined = values[~np.isnan(values)]
        return np.histogram(-defined, -edges[::-1])[0][::-1] / max(len(values), 1)

    random = record.random_executions["index"]
    return Histogram(edges, shares(index), shares(random) if len(random) else None)


def growth_of(record: FinishedRun) -> Growth | None:
    """At no more than 400 places."""
    if not len(record.executions["id"]):
        return None
    failing = np.flatnonzero(record.unfair())
    new = np.zeros(len(record.executions["id"]), np.int64)
    new[failing[np.unique(record.starts_of(record.executions)[failing], return_index=True)[1]]] = 1
    starts_found = np.concatenate([[0], np.cumsum(new)])
    at = np.unique(np.linspace(0, len(new), 400).round().astype(np.int64))
    purpose = record.executions["purpose"]
    starts = np.flatnonzero(np.concatenate([[True], purpose[1:] != purpose[:-1]]))
    ends = np.append(starts[1:], len(purpose))
    random = record.random
    phases = [(str(purpose[a]), int(a), int(b), bool(random[a])) for a, b in zip(starts, ends, strict=True)]
    return Growth(at, starts_found[at], int(starts_found[-1]), phases)


# --- who ----------------------------------------------------------------------------------------------


def sign_of(received: Floats) -> str:
    if not received.size or ((received > 0).any() and (received < 0).any()):
        return "mixed"
    return "negative" if (received < 0).any() else "positive"


def who_of(record: FinishedRun) -> tuple[WorstOff, list[Group]]:
    """Who comes off badly, in what counts as a failure here: natural failures, or one per start (core/worst_off.py)."""
    if len(record.executions["id"]):
        executions = record.judged
        unfair, random = record.unfair_among(executions), executions["random"]
    elif record.failures:
        executions = record.failures
        unfair, random = executions["status"] != "unstable", np.zeros(len(executions["id"]), bool)
    else:
        return WorstOff(STARTS, 0, (), None), []
    received = executions["received"]
    failures = votes(unfair, random, executions["root_seed"], executions["index"])
    name = failures.unit if failures.unit == NATURAL else "failures, one per start"
    defined = random & ~np.isnan(executions["index"])
    natural = "random executions" if (defined == random).all() else "random executions with an index"
    sets = [(natural, received[defined]), (name, received[failures.rows])]
    groups = [group_of(name, received) for name, received in sets if len(received)]
    return worst_off(received[failures.rows], failures.unit), groups


def group_of(name: str, received: Floats) -> Group:
    size = np.abs(received)
    share = size / size.sum(axis=1, keepdims=True)
    least = received == received.min(axis=1, keepdims=True)
    order = np.argsort(received, axis=1, kind="stable")
    ranked = np.take_along_axis(received, order, axis=1)
    down = ranked[:, 1] - ranked[:, 0] if received.shape[1] > 1 else np.zeros(len(received))
    up = ranked[:, -1] - ranked[:, -2] if received.shape[1] > 1 else np.zeros(len(received))
    by_rank = np.take_along_axis(share, order, axis=1)
    return Group(
        name,
        len(received),
        received.mean(axis=0),
        share.mean(axis=0),
        least.mean(axis=0),
        by_rank.mean(axis=0),
        int((down > up).sum()),
        int((up > down).sum()),
        *map(mean_error, (received, share, by_rank)),
    )


# --- the search ---------------------------------------------------------------------------------------


def rounds_of(record: FinishedRun) -> list[Round]:
    """What each round chose from and what it chose; points thinned evenly, the front never."""
    room = MOST_POINTS // max(min(len(record.rounds), MOST_ROUNDS), 1)
    rounds = []
    for number in record.rounds:
        candidates, population = (
            record.evidence[f"round_{number}_{who}_scores"] for who in ("candidates", "population")
        )
        unfair = tuple(
            unfair_count(record, record.evidence.get(f"round_{number}_{who}_id"))
            for who in ("candidates", "population")
        )
        rounds.append(
            Round(
                number + 1,
                thinned(candidates, room * 6 // 10),
                thinned(population, room * 3 // 10),
                front_of(candidates),
                (len(candidates), len(population)),
                None if unfair[0] is None or unfair[1] is None else (unfair[0], unfair[1]),
            )
        )
    return rounds


def unfair_count(record: FinishedRun, ids: NDArray[np.int64] | None) -> int | None:
    if ids is None:
        return None
    executed = np.isin(record.executions["id"], ids)
    return int(record.unfair()[executed].sum()) if executed.any() else None


def thinned(points: Floats, count: int) -> Floats:
    if len(points) <= count:
        return points
    return points[np.unique(np.linspace(0, len(points) - 1, count).round().astype(np.int64))]


def front_of(scores: Floats) -> Floats:
    """The rows of (n, 2) that no other dominates (smaller is better), each once, ascending in the first."""
    known = np.unique(scores[np.isfinite(scores).all(axis=1)], axis=0)  # sorted by the first, then the second
    if not len(known):
        return known
    best_before = np.minimum.accumulate(np.concatenate([[np.inf], known[:-1, 1]]))
    return known[known[:, 1] < best_before]


def coverage_of(record: FinishedRun) -> Coverage | None:
    """The covered cells as one map per agent."""
    cells, bins = record.evidence.get("coverage_cells"), int(record.settings.get("coverage_bins", 0))
    covered = float(record.summary.get("coverage") or 0)
    if cells is None or not len(cells) or bins < 2 or not covered or not record.positions_known:
        return None
    kind = record.summary.get("coverage_of") or ALL
    total = round(len(cells) / covered)
    agents = record.failures["received"].shape[1]
    if kind == ALL:  # bins ** (2 * agents); earlier runs looked at fewer agents where that was too much
        coordinates = round(float(np.log(total) / np.log(bins)))
        if total >= MOST_NUMBERS or coordinates % 2 or abs(bins**coordinates / total - 1) > 1e-6:
            return None  # not a grid whose cells can be told apart
        total, agents = bins**coordinates, coordinates // 2
    if cells.dtype.kind not in "iu" or cells.min() < 0 or cells.max() >= total:
        return None
    maps = maps_of(cells, kind, agents, bins)
    task = TASKS.get(str(record.summary.get("task")))
    placed, grid = (task.placed, task.grid) if task is not None else (True, False)
    return Coverage(bins, len(cells), total, maps, placed, grid, kind)


def lineage_of(executions: Columns, failure: int) -> list[Link]:
    """From the seed to the failure; it begins where a parent is not on record."""
    ids = executions["id"]
    chain: list[Link] = []
    wanted = failure
    while wanted >= 0:
        row = int(np.searchsorted(ids, wanted))  # ids ascend
        if row == len(ids) or ids[row] != wanted or (chain and wanted >= chain[-1].id):
            break
        chain.append(Link(wanted, *(executions[name][row].item() for name in ("operator", "start_step", "index"))))
        wanted = int(executions["parent"][row])
    return chain[::-1]


# --- tables -------------------------------------------------------------------------------------------


def table_of(failures: Columns) -> dict[str, Any]:
    """All failures, the lowest index first, column by column."""
    if not failures:
        return {"rows": 0}
    order = table_order(failures)
    names = ("id", "operator", "start_step", "length", "root_seed", "parent", "status", "received")
    columns = {name: failures[name][order] for name in names}
    return {"rows": len(order), **columns, "index": failures["index"][order].round(4)}


def table_order(failures: Columns) -> NDArray[np.int64]:
    return np.lexsort((failures["id"], failures["index"]))


def missing_of(view: View) -> dict[str, str]:
    """Section -> why it is not shown."""
    record = view.record
    method = str(record.summary.get("method"))
    files = record.missing
    missing: dict[str, str] = {}
    if view.histogram is None:
        missing["index"] = files.get("executions.npz", "in no executed episode did any agent receive anything")
    if view.growth is None:
        missing["growth"] = files.get("executions.npz", "no episode was judged")
    if not view.groups:
        missing["who"] = files.get("executions.npz", "in no executed episode did any agent receive anything")
    if not view.rounds:
        missing["rounds"] = files.get("evidence.npz", f"the method {method} prioritises no candidates by f2 and f3")
    if view.coverage is None:
        missing["coverage"] = coverage_absence(record)
    predictor = record.summary.get("predictor") or {}
    if predictor.get("d") is None:
        missing["predictor"] = f"the method {method} trains no predictor of this kind"
    elif "roc_abstract" not in record.evidence and "roc_full" not in record.evidence:
        missing["roc"] = files.get("evidence.npz", "the labelled episodes were of one kind, so there is no curve")
    if "executions.npz" in files:
        missing["lineage"] = files["executions.npz"]
    if not record.failures:
        nothing = "no unfair execution was found"
        missing["replays"] = missing["table"] = files.get("failures.npz", nothing)
        missing.setdefault("lineage", nothing)
    return missing


def coverage_absence(record: FinishedRun) -> str:
    if "evidence.npz" in record.missing:
        return record.missing["evidence.npz"]
    if not record.failures:
        return "no unfair execution went anywhere"
    if not record.positions_known:
        return "this task does not say where its agents are"
    if "coverage_cells" not in record.evidence:
        return "evidence.npz holds no coverage_cells"
    return "its grid has a single cell, or more than can be told apart"
