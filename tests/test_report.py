"""The page of a run: its numbers against slow ones, what it says where data is poor, and what it never lets out."""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from xml.etree.ElementTree import Element

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import beta
from support import TESTS, few_and_many
from test_search import chosen, search, team, walkers

from epymarl_fairtest.campaign.cautions import cautions
from epymarl_fairtest.campaign.steps import Step, natural
from epymarl_fairtest.commands.report import add_parser
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.numbers import as_given, percent
from epymarl_fairtest.core.statistics import rate_of
from epymarl_fairtest.host.sacred_log import SacredLog
from epymarl_fairtest.report import one_file, opening, packed, page, replays, sections, svg, view
from epymarl_fairtest.report.layout import task_of
from epymarl_fairtest.report.page import make_report
from epymarl_fairtest.report.replays import Replays, replays_of
from epymarl_fairtest.report.scenes import scene_of
from epymarl_fairtest.report.view import View, front_of, group_of, lineage_of, view_of
from epymarl_fairtest.report.wording import estimate, index_caption, verdict
from epymarl_fairtest.store.checksum import sealed
from epymarl_fairtest.store.failures import FailureRows, load_failures
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.tasks.contract import Task
from epymarl_fairtest.tasks.generic.rules import Unplaced

PLAIN = "\u00a0"


class Runs:
    """Small real runs, each executed once."""

    def __init__(self, root: Path) -> None:
        self._root, self._done, self._pages = root, set[str](), dict[str, Elements]()

    def __call__(self, name: str) -> Path:
        path = self._root / name
        if name not in self._done:
            self._done.add(name)
            subject, settings = KINDS[name]
            search(subject(), chosen(**settings), path)
        return path

    def page(self, name: str) -> Elements:
        if name not in self._pages:
            self._pages[name] = page_of(self(name))
        return self._pages[name]


KINDS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "spread": (lambda: team("spread"), {"theta": 0.85, "budget": 400}),
    "tag": (lambda: team("tag"), {"theta": 0.9}),
    "foraging": (lambda: team("foraging"), {}),
    "random": (lambda: team("spread"), {"method": "random", "budget": 120, "theta": 0.9}),
    "hill_climber": (lambda: team("spread"), {"method": "hill_climber", "budget": 150, "theta": 0.9}),
    "fair": (lambda: team("spread"), {"method": "random", "budget": 60, "theta": 0.01}),
    "fair_search": (lambda: team("spread"), {"theta": 0.01}),
    "generic": (walkers, {"theta": 0.9, "epsilon": 0.3}),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def copied(runs: Runs, tmp_path: Path) -> Callable[[str], Path]:
    """A copy that may be changed: nothing promises any more what its files hold."""

    def copy(name: str) -> Path:
        path = Path(shutil.copytree(runs(name), tmp_path / name, ignore=shutil.ignore_patterns("report")))
        (path / "checksums.json").unlink()
        return path

    return copy


def viewed(path: Path) -> View:
    return view_of(read_run(path))


def executions(path: Path) -> dict[str, Any]:
    with np.load(path / "executions.npz") as file:
        return {name: file[name] for name in file.files}


def changed(path: Path, **changes: Any) -> None:
    """Other values in a JSON file of a run."""
    value = json.loads(path.read_text()) | changes
    value.pop("crc", None)
    path.write_text(json.dumps(sealed(value) if path.name == "manifest.json" else value))


def rejudged(path: Path, rows: dict[str, Any]) -> None:
    """Other executions, and a summary that fits them."""
    np.savez(path / "executions.npz", **rows)
    theta = json.loads((path / "summary.json").read_text())["theta"]
    index = rows["index"]
    changed(path / "summary.json", failures=int((index <= theta).sum()), undefined=int(np.isnan(index).sum()))


class Elements(HTMLParser):
    """Every element with its attributes, and the text of the page without scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.found: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self._open: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.found.append((tag, dict(attributes)))
        self._open = tag if tag in self.inside else None

    def handle_endtag(self, tag: str) -> None:
        self._open = None

    def handle_data(self, data: str) -> None:
        (self.inside[self._open] if self._open else self.words).append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace(PLAIN, " ").split())

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.found if name == tag]


def page_of(path: Path, *, drawn: bool = True) -> Elements:
    """The page of a run; drawings that nobody looks at stay empty, because they take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        if not drawn:
            patch.setattr(svg, "_parsed", lambda figure: Element("svg", viewBox="0 0 1 1"))
        return Elements(make_report(path).read_text())


# --- numbers against slow ones ------------------------------------------------------------------------


def test_the_natural_rate_counts_random_executions_alone_and_has_the_exact_interval(runs: Runs) -> None:
    rows = executions(runs("spread"))
    unfair = total = 0
    for purpose, index in zip(rows["purpose"], rows["index"], strict=True):
        if purpose in ("predictor", "candidate"):
            total += 1
            unfair += index <= 0.85
    rate = viewed(runs("spread")).rate
    assert rate is not None
    assert (rate.count, rate.executions) == (unfair, total)
    assert 0 < unfair < total < len(rows["id"])
    assert rate.low == pytest.approx(beta.ppf(0.025, unfair, total - unfair + 1))
    assert rate.high == pytest.approx(beta.ppf(0.975, unfair + 1, total - unfair))


def test_of_a_random_run_every_execution_counts_and_of_other_methods_the_natural_ones(runs: Runs) -> None:
    rate = viewed(runs("random")).rate
    assert rate is not None
    assert (rate.executions, rate.count) == (120, int((executions(runs("random"))["index"] <= 0.9).sum()))
    found = viewed(runs("hill_climber"))
    assert found.rate is not None
    assert found.rate.as_dict() == found.summary["natural_rate"]
    assert found.rate.executions == natural.UNLESS_GIVEN


def test_the_histogram_counts_an_index_of_exactly_theta_as_unfair(copied: Callable[[str], Path]) -> None:
    path = copied("spread")
    rows = executions(path)
    rows["index"][:7] = 0.85  # as many as that lie on the threshold
    rows["index"][7:9] = np.nan
    rejudged(path, rows)
    found = viewed(path)
    assert found.histogram is not None
    assert found.record.random.any()
    for shares, index in (
        (found.histogram.everything, rows["index"]),
        (found.histogram.random, rows["index"][np.isin(rows["purpose"], ["predictor", "candidate"])]),
    ):
        edges = found.histogram.edges.tolist()
        for n, share in enumerate(shares.tolist()):  # type: ignore[union-attr]
            inside = [x for x in index.tolist() if edges[n] < x <= edges[n + 1] or (n == 0 and x == edges[0])]
            assert share == pytest.approx(len(inside) / len(index))
        below = found.histogram.edges[1:] <= 0.85
        assert shares[below].sum() == pytest.approx(np.mean(index <= 0.85))  # type: ignore[index]
    assert found.histogram.random is not None
    assert found.rate is not None
    told = index_caption(found)  # undefined ones count, as they do in the verdict
    assert found.histogram.random[below].sum() == pytest.approx(found.rate.estimate)
    assert f"lie {estimate(found.rate)[0]} of the random executions" in told
    assert f"{percent(found.undefined / found.rate.executions)} of the random executions have no index" in told


def test_shares_and_who_is_worst_off_are_those_of_a_loop_over_episodes(runs: Runs) -> None:
    rows = executions(runs("spread"))
    found = viewed(runs("spread"))
    unfair = found.groups[-1]
    received = rows["received"][(rows["index"] <= 0.85) & rows["random"]].tolist()
    assert unfair.name == found.worst.unit == "natural failures"
    worst, share, ranked, behind = np.zeros(3), np.zeros(3), np.zeros(3), 0
    for x in received:
        sizes = [abs(value) / sum(map(abs, x)) for value in x]
        share += sizes
        worst[x.index(min(x))] += 1
        ranked += [size for _, size in sorted(zip(x, sizes, strict=True))]
        low, middle, high = sorted(x)
        behind += middle - low > high - middle
    count = len(received)
    assert unfair.episodes == count > 5
    assert unfair.received == pytest.approx(np.mean(received, axis=0))
    assert unfair.share == pytest.approx(share / count)
    assert unfair.worst_off == pytest.approx(worst / count)
    assert unfair.ranked == pytest.approx(ranked / count)
    assert unfair.left_behind == behind
    summary = json.loads((runs("spread") / "summary.json").read_text())
    assert summary["worst_off"] == found.worst.as_dict([1, 2, 3])
    assert [one["count"] for one in summary["worst_off"]["least"]] == worst.tolist()


def test_two_who_receive_least_are_both_worst_off() -> None:
    group = group_of("some", np.array([[0.0, 0.0, 1.0], [1.0, 2.0, 3.0]]))
    assert group.worst_off.tolist() == [1.0, 0.5, 0.0]
    assert (group.left_behind, group.favoured) == (0, 1)


@pytest.mark.slow
def test_with_few_natural_failures_one_failure_of_each_start_is_looked_at(copied: Callable[[str], Path]) -> None:
    path = copied("spread")
    rows = executions(path)
    rows["index"][rows["random"]] = 0.99
    rejudged(path, rows)
    found = viewed(path)
    lowest: dict[int, tuple[float, int]] = {}
    for n, (start, index) in enumerate(zip(rows["root_seed"].tolist(), rows["index"].tolist(), strict=True)):
        if index <= 0.85:
            lowest[start] = min(lowest.get(start, (1.0, 0)), (index, n))
    received = rows["received"][[n for _, n in lowest.values()]]
    assert (found.worst.unit, found.worst.votes) == ("starts", len(lowest))
    assert found.groups[-1].name == "failures, one per start"
    assert found.groups[-1].received == pytest.approx(received.mean(axis=0))
    assert f"of {len(lowest)} starts with failures" in page_of(path, drawn=False).text


@pytest.mark.slow
def test_negative_rewards_are_explained_as_costs(runs: Runs) -> None:
    found = viewed(runs("spread"))
    assert found.sign == "negative"
    assert "bears the largest cost" in runs.page("spread").text


def test_growth_is_a_running_count_of_starts_and_ends_with_all_of_them(runs: Runs) -> None:
    rows, growth = executions(runs("spread")), viewed(runs("spread")).growth
    assert growth is not None
    with np.load(runs("spread") / "failures.npz") as file:
        start_of = dict(zip(file["id"].tolist(), file["start"].tolist(), strict=True))
    seen: set[int] = set()
    starts = {0: 0}
    for n, number in enumerate(rows["id"].tolist(), 1):
        seen |= {start_of[number]} if number in start_of else set()
        starts[n] = len(seen)
    assert growth.starts.tolist() == [starts[n] for n in growth.episodes.tolist()]
    summary = json.loads((runs("spread") / "summary.json").read_text())
    assert growth.total == len(seen) == summary["distinct_starts"]
    for purpose, first, last, random in growth.phases:
        assert set(rows["purpose"][first:last].tolist()) == {purpose}
        assert random == (purpose in ("predictor", "candidate"))
    assert [last for _, _, last, _ in growth.phases][:-1] == [first for _, first, _, _ in growth.phases][1:]


def test_the_front_is_what_no_other_candidate_dominates() -> None:
    scores = np.random.default_rng(3).integers(0, 12, (80, 2)) / 10
    expected = {
        (a, b)
        for a, b in scores.tolist()
        if not any((c <= a and d <= b and (c < a or d < b)) for c, d in scores.tolist())
    }
    found = front_of(scores)
    assert {tuple(row) for row in found.tolist()} == expected
    assert found[:, 0].tolist() == sorted(found[:, 0].tolist())
    assert len(front_of(np.empty((0, 2)))) == 0


def test_rounds_tell_what_was_taken_from_what(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MOST_POINTS", 40)
    with np.load(runs("spread") / "evidence.npz") as evidence:
        sizes = [len(evidence[f"round_{r}_candidates_id"]) for r in (0, 1)]
        taken = evidence["round_1_population_id"].tolist()
    rows = executions(runs("spread"))
    index = dict(zip(rows["id"].tolist(), rows["index"].tolist(), strict=True))
    first, second = viewed(runs("spread")).rounds
    assert [first.counts[0], second.counts[0]] == sizes
    assert sum(len(one.candidates) + len(one.population) for one in (first, second)) <= 40
    assert second.unfair is not None
    assert second.unfair[1] == sum(index[i] <= 0.85 for i in taken)


@pytest.mark.parametrize("task", ["spread", "tag", "foraging"])
def test_coverage_maps_count_the_joint_cells_of_the_failures(task: str, runs: Runs) -> None:
    path = runs(task)
    failures, bins = load_failures(path / "failures.npz"), 4
    known = team(task).task
    cells = set()
    for row in range(len(failures)):
        for at in known.positions(failures.states[row, : failures.length[row] + 1]).tolist():
            scaled = [(value - known.low) / (known.high - known.low) * bins for place in at for value in place]
            cells.add(tuple(min(max(int(value), 0), bins - 1) for value in scaled))
    coverage = viewed(path).coverage
    assert coverage is not None
    assert (coverage.cells, coverage.total, coverage.grid) == (len(cells), bins**6, task == "foraging")
    for agent in range(3):
        for first in range(bins):
            for second in range(bins):
                there = [cell for cell in cells if cell[2 * agent : 2 * agent + 2] == (first, second)]
                assert coverage.maps[agent, first, second] == pytest.approx(len(there) / bins**4)


def test_a_line_of_descent_goes_from_the_seed_to_the_failure_through_every_parent(runs: Runs) -> None:
    rows = executions(runs("spread"))
    parent = dict(zip(rows["id"].tolist(), rows["parent"].tolist(), strict=True))
    longest = 0
    for failure in rows["id"][rows["index"] <= 0.85].tolist():
        expected = [failure]
        while parent[expected[0]] >= 0:
            expected.insert(0, parent[expected[0]])
        chain = lineage_of(rows, failure)
        assert [link.id for link in chain] == expected
        assert chain[0].operator == "seed"
        assert chain[-1].index == rows["index"][rows["id"] == failure][0]
        longest = max(longest, len(chain))
    assert longest > 2
    assert lineage_of(rows, 10**9) == []


@pytest.mark.slow
def test_where_the_most_unfair_failures_were_not_changed_the_descent_of_changed_ones_is_shown(
    copied: Callable[[str], Path],
) -> None:
    path = copied("spread")
    with np.load(path / "failures.npz") as file:
        columns = {name: file[name] for name in file.files}
    seeds = columns["parent"] < 0
    columns["index"] = np.where(seeds, 0.1, columns["index"])
    np.savez(path / "failures.npz", **columns)
    found, record = page_of(path, drawn=False), read_run(path)
    assert "The next ones were changed" in found.text
    chains = page.chains_of(view_of(record), replays_of(record))
    assert len(chains) == 2
    assert all(len(chain) > 1 for chain in chains)
    assert chains[0][-1].id == columns["id"][~seeds][columns["index"][~seeds].argmin()]


def test_the_table_holds_all_failures_the_lowest_first(runs: Runs) -> None:
    with np.load(runs("spread") / "failures.npz") as file:
        index, ids = file["index"], file["id"]
    table = viewed(runs("spread")).table
    assert table["id"].tolist() == ids[np.argsort(index, kind="stable")].tolist()
    assert table["rows"] == len(ids)


@pytest.mark.parametrize(
    ("share", "told"),
    [
        (0, "0%"),
        (0.019, "1.9%"),
        (0.0001484, "0.015%"),
        (0.5, "50%"),
        (0.95, "95%"),
        (0.996, "99.6%"),
        (0.9999, "99.99%"),
        (1, "100%"),
    ],
)
def test_percentages_have_two_digits_that_matter(share: float, told: str) -> None:
    assert percent(share).replace(PLAIN, " ") == told


@pytest.mark.parametrize(("share", "told"), [(0.02, "2%"), (0.005, "0.5%"), (0.95, "95%"), (0.999, "99.9%")])
def test_a_share_that_somebody_set_is_told_as_they_would_write_it(share: float, told: str) -> None:
    assert as_given(share) == told


@pytest.mark.parametrize(("unfair", "end"), [(0, "1.0"), (4, "5.0"), (100, "50"), (441, "100"), (500, "100")])
def test_a_rate_is_drawn_on_a_line_of_executions_that_there_can_be(unfair: int, end: str) -> None:
    rate = rate_of(unfair, 500)
    drawn = opening.interval_of(rate)
    assert drawn["end"] == f"{end}%"
    assert float(drawn["value"]) == pytest.approx(100 * rate.estimate / (float(end) / 100), abs=0.01)


@pytest.mark.parametrize(
    ("failures", "episodes", "told"),
    [
        (5609, 25000, ("22.4%", "21.9%", "23.0%")),
        (0, 60, ("0%", "0%", "6.0%")),
        (3, 3, ("100%", "29%", "100%")),
    ],
)
def test_an_interval_has_as_many_digits_as_tell_its_ends_apart(
    failures: int, episodes: int, told: tuple[str, ...]
) -> None:
    assert tuple(part.replace(PLAIN, " ") for part in estimate(rate_of(failures, episodes, 0.95))) == told


# --- what it says -------------------------------------------------------------------------------------


def learned(path: Path) -> Path:
    """The run of a team that does better than a random one."""
    competence = json.loads((path / "summary.json").read_text())["competence"]
    changed(
        path / "summary.json", competence=competence | {"random_team": competence["random_team"] | {"beaten": True}}
    )
    return path


def test_the_verdict_of_a_search_tells_the_rate_and_what_was_found(copied: Callable[[str], Path]) -> None:
    path = learned(copied("spread"))
    found, summary = viewed(path), json.loads((path / "summary.json").read_text())
    assert found.rate is not None
    assert verdict(found).replace(PLAIN, " ") == (
        f"This team treats an agent unfairly in {100 * found.rate.estimate:.0f}% of its random executions; the search"
        f" found {summary['distinct_failures']} different failures from {summary['distinct_starts']} starts."
    )


def test_failures_that_are_alike_are_not_said_to_come_from_more_starts_than_there_are(
    copied: Callable[[str], Path],
) -> None:
    path = learned(copied("spread"))
    found = viewed(path)
    found.record.summary["distinct_starts"] = found.record.summary["distinct_failures"] + 1
    assert verdict(found).endswith(f"the search found {found.record.summary['distinct_failures']} different failures.")


def test_a_team_that_has_not_learned_is_told_so_before_anything_else(runs: Runs) -> None:
    told, random = runs.page("spread").text, viewed(runs("spread")).summary["competence"]["random_team"]
    assert verdict(viewed(runs("spread"))).startswith("This team has not learned its task. It treats")
    assert f"than a team that acts at random in {random['better']} and less in {random['worse']}." in told
    assert "a random team" in told


def test_the_verdict_of_random_executions_alone_counts_them(copied: Callable[[str], Path]) -> None:
    path = learned(copied("random"))
    rate = viewed(path).rate
    assert rate is not None
    assert verdict(viewed(path)).replace(PLAIN, " ") == (
        f"This team treats an agent unfairly in {100 * rate.estimate:.0f}% of its random executions: {rate.count} of"
        " 120 were unfair."
    )


def test_no_failure_at_all_is_told_as_an_upper_bound(runs: Runs) -> None:
    bound = percent(1 - 0.025 ** (1 / 60)).replace(PLAIN, " ")
    told = runs.page("fair").text
    assert f"No unfair execution of this team was found in 60 episodes: at most {bound}" in told
    assert "with 95% confidence" in told
    for section in ("no unfair execution was found", "no unfair execution went anywhere"):
        assert section in told


def test_a_search_that_finds_nothing_has_a_page_too(runs: Runs) -> None:
    told = runs.page("fair_search").text
    assert "No unfair execution of this team was found" in told
    assert "below all random executions" in told
    assert "so there is no curve" in told


def test_failures_found_where_no_random_execution_is_unfair_are_told_apart(copied: Callable[[str], Path]) -> None:
    path = copied("spread")
    rows = executions(path)
    rows["index"][np.isin(rows["purpose"], ["predictor", "candidate"])] = 0.99
    rejudged(path, rows)
    told = verdict(viewed(path)).replace(PLAIN, " ")
    assert re.match(r"None of [\d,]+ random executions of this team was unfair \(at most", told)
    assert "but the search found" in told


@pytest.mark.slow
def test_undefined_episodes_are_told_and_never_unfair(runs: Runs) -> None:
    path = runs("foraging")
    summary, found = json.loads((path / "summary.json").read_text()), viewed(path)
    assert found.rate is not None
    assert summary["undefined"] >= found.undefined > 0
    index = executions(path)["index"][found.record.random]
    assert found.quantile == pytest.approx((index <= 0.8).sum() / (~np.isnan(index)).sum())
    assert found.rate.estimate < found.quantile
    told = runs.page("foraging").text
    assert f"In {found.undefined} of them nobody received anything" in told
    nobody = percent(found.undefined / found.rate.executions).replace(PLAIN, " ")
    assert f"In {nobody} of the random executions no agent received anything" in told


def test_a_run_in_which_nobody_received_anything_says_so(copied: Callable[[str], Path]) -> None:
    path = copied("fair")
    rows = executions(path)
    rows["index"][:], rows["received"][:] = np.nan, 0.0
    rejudged(path, rows)
    told = page_of(path, drawn=False).text
    assert "Nothing can be said about fairness" in told
    assert "in no executed episode did any agent receive anything" in told


@pytest.mark.slow
def test_a_task_without_places_draws_what_is_received_instead(runs: Runs) -> None:
    found = runs.page("generic")
    assert "the players draw what each agent has received over time" in found.text
    assert "the first two numbers that an agent sees stand for them" in found.text
    scenes = json.loads(found.inside["script"][0])["scenes"]
    assert {scene["kind"] for scene in scenes} == {"none"}


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("spread", "plane"),
        pytest.param("tag", "plane", marks=pytest.mark.slow),
        pytest.param("foraging", "grid", marks=pytest.mark.slow),
    ],
)
def test_the_task_is_made_again_from_the_folder_alone(task: str, kind: str, runs: Runs) -> None:
    path = runs(task)
    failures = load_failures(path / "failures.npz")
    manifest = json.loads((path / "manifest.json").read_text())
    again = task_of(path, manifest, failures)
    assert type(again) is type(team(task).task)
    assert np.array_equal(again.positions(failures.states), team(task).task.positions(failures.states))
    scenes = json.loads(runs.page(task).inside["script"][0])["scenes"]
    assert {scene["kind"] for scene in scenes} == {kind}


def test_a_field_of_another_size_is_read_from_the_team_and_a_wrong_one_is_not_drawn(
    copied: Callable[[str], Path],
) -> None:
    path = copied("foraging")
    failures = load_failures(path / "failures.npz")
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest.pop("env_args") == {}  # early runs of format 3 did not tell it
    (path / "policy").mkdir()
    for arguments, expected in (("{field_size: [10, 10]}", 9.5), ("{max_num_food: 7}", None), ("{players: no}", None)):
        (path / "policy" / "policy.yaml").write_text(f"env_args: {arguments}\n")
        task = task_of(path, manifest, failures)
        assert isinstance(task, Unplaced) if expected is None else task.high == expected
    stock = manifest | {"key": "lbforaging:Foraging-9x9-3p-3f-v3"}
    shutil.rmtree(path / "policy")
    assert task_of(path, stock, failures).high == 8.5


def test_the_most_unfair_are_shown_and_unstable_ones_are_not(copied: Callable[[str], Path]) -> None:
    path = copied("random")
    with np.load(path / "failures.npz") as file:
        columns = {name: file[name] for name in file.files}
    lowest, second, third = np.argsort(columns["index"], kind="stable")[:3].tolist()

    def shown() -> list[int]:
        return [one.scene.id for one in replays_of(read_run(path)).worst]

    assert shown() == columns["id"][[lowest, second]].tolist()
    columns["status"][lowest] = "unstable"
    np.savez(path / "failures.npz", **columns)
    assert shown() == columns["id"][[second, third]].tolist()


def test_a_long_episode_has_a_still_and_no_film(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "LONGEST", 5)
    found = replays_of(read_run(runs("random")))
    assert all(one.film is None and one.still.startswith(b"\x89PNG") for one in found.all)
    monkeypatch.undo()
    assert all(str(one.film)[2:5] == "GIF" for one in replays_of(read_run(runs("random"))).all)


# --- what is not there --------------------------------------------------------------------------------


def test_a_run_that_was_thinned_out_has_a_page_of_what_there_is_and_says_what_is_missing(
    copied: Callable[[str], Path],
) -> None:
    path = copied("spread")
    for name in ("executions.npz", "evidence.npz"):
        (path / name).unlink()
    summary = json.loads((path / "summary.json").read_text())
    found = page_of(path, drawn=False)
    assert f"found {summary['distinct_failures']} different failures" in found.text
    assert found.text.count("executions.npz is not in the run folder") >= 3
    assert found.text.count("evidence.npz is not in the run folder") >= 3
    assert len(found.of("article")) == 4
    assert f"{summary['confirmed_failures']} of {summary['failures']} failures were replayed" in found.text


def test_a_run_that_an_older_version_of_this_format_wrote_has_a_page(tmp_path: Path) -> None:
    path = Path(shutil.copytree(TESTS / "fixtures" / "format-3", tmp_path / "run"))
    found, summary = page_of(path), json.loads((path / "summary.json").read_text())
    assert f"{summary['failures']:,} unfair execution" in found.text
    assert found.of("article")
    assert ("executions.npz is not in the run folder" in found.text) != (path / "executions.npz").is_file()


def test_failures_that_were_taken_away_leave_the_rest(copied: Callable[[str], Path]) -> None:
    path = copied("spread")
    (path / "failures.npz").unlink()
    found = page_of(path, drawn=False)
    assert "failures.npz is not in the run folder" in found.text
    assert found.of("article") == []
    assert len(found.of("svg")) > 5


def test_an_unfinished_run_names_the_command_that_finishes_it(copied: Callable[[str], Path], tmp_path: Path) -> None:
    path = copied("random")
    (path / "summary.json").unlink()
    with pytest.raises(FairTestError, match=rf"not finished.*fairtest run --resume {re.escape(str(path))}"):
        make_report(path)
    with pytest.raises(FairTestError, match="There is no folder"):
        make_report(tmp_path / "nothing")
    assert not (path / "report").exists()


@pytest.mark.parametrize("name", ["summary.json", "manifest.json", "executions.npz", "evidence.npz", "failures.npz"])
def test_a_damaged_file_is_named(name: str, copied: Callable[[str], Path]) -> None:
    path = copied("random")
    (path / name).write_bytes(b"{[PK\x03\x04 torn")
    with pytest.raises(FairTestError, match=rf"{name}.*(is damaged|cannot be read)"):
        make_report(path)


def test_a_file_that_is_not_what_the_run_wrote_is_refused(runs: Runs, tmp_path: Path) -> None:
    path = Path(shutil.copytree(runs("random"), tmp_path / "run"))
    summary = (path / "summary.json").read_text()
    (path / "summary.json").write_text(summary.replace('"failures": ', '"failures": 1'))
    with pytest.raises(FairTestError, match=r"summary\.json.*checksum"):
        make_report(path)
    changed(path / "manifest.json", format=99)
    with pytest.raises(FairTestError, match=r"newer FairTest"):
        make_report(path)


NONSENSE: tuple[Any, ...] = (None, True, -1, 10**30, 0.5, float("inf"), float("nan"), "x", [], {}, [None], {"a": "b"})
GONE = object()


def words_of(view: View) -> None:
    """All that the page says, without drawings and templates, which take most of the time."""
    drawn = {key: [""] for key in ("index", "growth", "predictor")} | {
        "who": ["", ""],
        "rounds": [""] * len(view.rounds),
    }
    drawn["coverage"] = [""] * len(view.coverage.maps) if view.coverage else []
    none = Replays([], [], False)
    sections.sections_of(view, none, drawn, page.chains_of(view, none))
    assert opening.cards(view)
    assert opening.answers(view)
    assert opening.commands(view)
    assert verdict(view)
    assert all(cautions(view.summary))
    assert page.eyebrow(view)
    safe = {"table": packed.packed_table(view.table)}
    assert page.safe_json(safe)


def places_in(value: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every name in a JSON object, with those that lead to it."""
    for name in value if isinstance(value, dict) else ():
        yield (*before, name)
        yield from places_in(value[name], (*before, name))


@few_and_many("values", 1, 5)
@pytest.mark.parametrize("name", ["summary.json", "manifest.json"])
def test_a_crafted_file_gives_a_page_or_one_clear_refusal(
    name: str, values: int, copied: Callable[[str], Path]
) -> None:
    path = copied("spread")
    whole = json.loads((path / name).read_text())
    refused = 0
    for number, place in enumerate(places_in(whole)):
        nonsense = [NONSENSE[(number // 2 + step) % len(NONSENSE)] for step in range(values)]
        for value in [GONE, *nonsense] if values > 1 else [GONE] if number % 2 else nonsense:
            crafted = json.loads(json.dumps(whole))
            inside = crafted
            for part in place[:-1]:
                inside = inside[part]
            inside[place[-1]] = value
            if value is GONE:
                del inside[place[-1]]
            crafted.pop("crc", None)
            (path / name).write_text(json.dumps(sealed(crafted) if name == "manifest.json" else crafted))
            try:
                words_of(viewed(path))
            except FairTestError:
                refused += 1
    assert refused > 20


# --- what it never lets out ---------------------------------------------------------------------------

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\" onload='alert(3)' &amp; <!--"


@pytest.mark.slow
def test_hostile_names_are_shown_and_never_obeyed(runs: Runs, copied: Callable[[str], Path]) -> None:
    path = copied("spread")
    manifest = json.loads((path / "manifest.json").read_text())
    plain = [tag for tag, _ in runs.page("spread").found]
    changes: dict[str, Any] = dict.fromkeys(("command", "policy", "algorithm", "host", "key", "fairtest"), HOSTILE)
    changes |= {"settings": manifest["settings"] | {HOSTILE: HOSTILE}, "versions": {HOSTILE: HOSTILE}}
    changed(path / "manifest.json", **changes)
    summary = json.loads((path / "summary.json").read_text())
    phases = summary["phases"] | {HOSTILE: 1.0}
    ledger = summary["ledger"] | {HOSTILE: {"episodes": 1, "steps": 1}}
    changed(path / "summary.json", preset=HOSTILE, engine=HOSTILE, phases=phases, ledger=ledger)
    with np.load(path / "failures.npz") as file:
        columns = {name: file[name] for name in file.files}
    columns["status"] = np.full(len(columns["id"]), HOSTILE)
    np.savez(path / "failures.npz", **columns)
    found = page_of(path)
    kinds = {tag: [t for t, _ in found.found].count(tag) - plain.count(tag) for tag in ("script", "img", "svg")}
    assert kinds == {"script": 0, "img": 0, "svg": 0}
    assert not any(name.startswith("on") for _, attributes in found.found for name in attributes)
    assert " ".join(found.words).count("</script><script>alert(1)</script><img") >= 10
    assert unpacked(json.loads(found.inside["script"][0])["table"])["status"][0] == HOSTILE
    assert not set("<>&") & set(found.inside["script"][0])


def test_the_page_may_load_nothing_and_run_its_own_script_alone(runs: Runs) -> None:
    found = runs.page("spread")
    (policy,) = [a["content"] for a in found.of("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    data, _, script = found.inside["script"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert rules["default-src"] == ["'none'"]
    assert rules["script-src"] == [f"'sha256-{digest}'"]
    assert rules["img-src"] == ["data:"]
    assert json.loads(data)["scenes"]
    for tag, attributes in found.found:
        for name in ("src", "href", "xlink:href", "action", "srcset", "data"):
            value = attributes.get(name, "#")
            assert value.startswith(("#", "data:")) or (tag == "a" and value.startswith("../")), (tag, value[:80])
    assert not re.search(r"url\(\s*['\"]?(?!#)", "".join(found.inside["style"]))


def unpacked(table: dict[str, Any]) -> dict[str, Any]:
    """The columns of the table in the page, as `Table` of report.js reads them."""
    columns = {
        name: np.frombuffer(base64.b64decode(text), "<" + kind) for name, (kind, text) in table["columns"].items()
    }
    columns["received"] = columns["received"].reshape(table["rows"], -1)
    return columns | {name: np.array(known)[columns[name]] for name, known in table["names"].items()}


def unpacked_scenes(text: str) -> Iterator[dict[str, Any]]:
    """The scenes of a block, as `Block` of report.js reads them."""
    head, planes = zlib.decompress(base64.b64decode(text)).split(b"\0", 1)
    facts, folded = json.loads(head), np.frombuffer(planes, np.uint8).reshape(4, -1).T.copy().view("<u4")[:, 0]
    numbers, place = np.where(folded % 2, -((folded.astype(np.int64) + 1) // 2), folded // 2), 0

    def taken(count: int) -> Any:
        nonlocal place
        place += count
        return numbers[place - count : place]

    for cast, steps, unit, worse in facts["scenes"]:
        kind, bodies = facts["casts"][cast]
        window = taken(4) / packed.FINE
        places, present = [], []
        for body in bodies:
            at = [np.resize(np.cumsum(taken(1 if "rests" in body else steps + 1)), steps + 1) for _ in "xy"]
            places.append(np.array(at).T / packed.FINE)
            present.append(taken(steps + 1) if "leaves" in body else np.ones(steps + 1))
        received = np.array([np.cumsum(np.cumsum(taken(steps + 1))) for _ in worse]).T * unit
        yield {"kind": kind, "window": window, "bodies": bodies, "at": places, "present": present,
               "received": received, "unit": unit, "worse": [one == "1" for one in worse]}  # fmt: skip
    assert place == len(numbers)


@pytest.mark.parametrize("name", ["spread", "foraging"])
def test_every_failure_of_the_table_is_in_the_page(name: str, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies are within a hundredth of where they were, and agents received what they did."""
    for module in (packed, replays):
        monkeypatch.setattr(module, "BLOCK", 7)
    path, record = runs(name), read_run(runs(name))
    task = task_of(path, record.manifest, load_failures(path / "failures.npz"))
    found = replays_of(record, task)
    table = unpacked(packed.packed_table(viewed(path).table))
    failures = load_failures(path / "failures.npz")
    assert sorted(table["id"].tolist()) == sorted(failures.id.tolist())
    assert len(found.packed) > 1
    rows = {number: row for row, number in enumerate(failures.id.tolist())}
    small = [scene for block in found.packed for scene in unpacked_scenes(block)]
    for place, (number, one) in enumerate(zip(table["id"].tolist(), small, strict=True)):
        scene = scene_of(task, failures, rows[number], "jfi", record.theta, record.agents)
        assert table["root_seed"][place] == scene.root_seed, "no digit is lost"
        assert table["operator"][place] == scene.operator
        assert one["worse"] == scene.worse.tolist()
        np.testing.assert_allclose(one["received"], scene.received, atol=0.51 * one["unit"])
        for body, at, present in zip(scene.field.bodies, one["at"], one["present"], strict=True):
            np.testing.assert_allclose(at, body.at, atol=0.0051)
            np.testing.assert_array_equal(present, body.present)


@pytest.mark.parametrize("name", ["spread", "foraging"])
def test_failures_are_packed_alike_however_they_are_read(
    name: str, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once or a block at a time, and whether a task gives its fields as arrays or one by one."""
    for module in (packed, replays):
        monkeypatch.setattr(module, "BLOCK", 7)
    record, failures = read_run(runs(name)), FailureRows(runs(name) / "failures.npz")
    task = task_of(record.path, record.manifest, failures.take(slice(7)))

    def blocks() -> list[str]:
        return packed.packed(replays.in_table(record, task, failures), record.agents, replays.ROOM)

    whole, at_once = blocks(), type(task).fields
    assert len(whole) > 1
    monkeypatch.setattr(replays, "AT_ONCE", 0)
    assert blocks() == whole
    monkeypatch.setattr(type(task), "fields", Task.fields)
    one_by_one = lambda own, states: at_once(own, states[None], np.array([len(states) - 1]))[0]  # noqa: E731
    monkeypatch.setattr(type(task), "field", one_by_one)
    assert blocks() == whole


def test_a_full_page_keeps_the_lowest_failures_and_then_films(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    record = read_run(runs("spread"))
    for module in (packed, replays):
        monkeypatch.setattr(module, "BLOCK", 7)
    whole = replays_of(record)
    assert all(one.film for one in whole.all)
    monkeypatch.setattr(replays, "ROOM", sum(map(len, whole.packed)) + len(whole.worst[0].film or b"") * 4 // 3 + 1)
    filmed = replays_of(record)
    assert filmed.packed == whole.packed
    assert [bool(one.film) for one in filmed.all] == [True] + [False] * (len(filmed.all) - 1)
    monkeypatch.setattr(replays, "ROOM", len(whole.packed[0]) + 1)
    full = replays_of(record)
    assert full.packed == whole.packed[:1]
    assert not any(one.film for one in full.all)


def test_links_lead_to_what_there_is(runs: Runs) -> None:
    path, found = runs("spread"), runs.page("spread")
    ids = [attributes["id"] for _, attributes in found.found if "id" in attributes]
    assert len(ids) == len(set(ids)), "an id is used twice"
    for attributes in found.of("a") + found.of("use"):
        target = attributes.get("href") or attributes["xlink:href"]
        assert target[1:] in ids if target.startswith("#") else (path / "report" / target).is_file(), target
    for _, attributes in found.found:
        for name in attributes.get("aria-labelledby", "").split():
            assert name in ids


def test_links_of_sacreds_copy_lead_to_its_artifacts(runs: Runs) -> None:
    runs.page("spread")
    kept: dict[str, bytes] = {}

    class Sacred:
        info: ClassVar[dict[str, Any]] = {}

        def add_artifact(self, path: str, name: str) -> None:
            kept[name] = Path(path).read_bytes()

    logger = SimpleNamespace(log_stat=lambda *said: None, _run_obj=Sacred())
    SacredLog(logger, 0, info=True).finished(runs("spread"), read_run(runs("spread")).summary, None)  # type: ignore[arg-type]
    copy = Elements(kept["fairtest_report_index.html"].decode())
    links = [link["href"] for link in copy.of("a") if not link["href"].startswith(("#", "data:"))]
    assert len(links) > 5
    assert set(links) <= kept.keys()


def test_every_figure_has_a_caption_and_tells_its_numbers(runs: Runs) -> None:
    found = runs.page("spread")
    assert len(found.of("figure")) == len(found.of("figcaption")) == len(found.of("svg")) > 8
    for attributes in found.of("svg"):
        assert attributes["role"] == "img"
        assert len(re.findall(r"\d", attributes["aria-label"])) > 3
    assert all(attributes["alt"] for attributes in found.of("img"))
    assert [tag for tag, _ in found.found if tag in ("h1", "h2")] == ["h1", *["h2"] * 14], "what now, and the sections"


def test_colours_follow_the_style_sheet(runs: Runs) -> None:
    text = runs.page("spread").source
    for stand_in in ("#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f"):
        assert stand_in not in text
    drawn = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.S))
    assert drawn.count("var(--") > 100
    assert "#000000" not in drawn


# --- always the same ----------------------------------------------------------------------------------

ALONE = """
import sys
from pathlib import Path
from epymarl_fairtest.report.page import make_report
make_report(Path(sys.argv[1]))
print(sorted({"torch", "sacred", "matplotlib", "sklearn", "numba"} & set(sys.modules)))
"""


@pytest.mark.fresh
def test_the_same_run_gives_the_same_bytes_in_any_process_without_torch_or_matplotlib(
    runs: Runs, tmp_path: Path
) -> None:
    found = []
    for seed in ("1", "2"):
        copy = Path(shutil.copytree(runs("tag"), tmp_path / seed / "run"))
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-W", "ignore", "-c", ALONE, copy.name]  # the page names it in its commands
        done = subprocess.run(command, cwd=copy.parent, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"
        found.append((copy / "report" / "index.html").read_bytes())
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_given_task_gives_the_same_replays_as_one_made_again(runs: Runs) -> None:
    record = read_run(runs("tag"))
    made, given = (replays_of(record, task).all for task in (None, team("tag").task))
    assert [(one.as_json(), one.film, one.still) for one in made] == [
        (one.as_json(), one.film, one.still) for one in given
    ]


def test_nothing_else_in_the_run_folder_changes(copied: Callable[[str], Path]) -> None:
    path = copied("fair")
    before = {file: file.read_bytes() for file in path.iterdir()}
    assert make_report(path) == path / "report" / "index.html"
    assert {file: file.read_bytes() for file in path.iterdir() if file.is_file()} == before
    assert [file.name for file in (path / "report").iterdir()] == ["index.html"]


def test_a_report_that_cannot_be_written_is_told(copied: Callable[[str], Path]) -> None:
    path = copied("fair")
    (path / "report").write_text("mine")
    with pytest.raises(FairTestError, match=r"cannot write.*report"):
        make_report(path)


# --- fairtest report ----------------------------------------------------------------------------------


def called(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    args = parser.parse_args(["report", *arguments])
    code: int = args.func(args)
    return code


@pytest.mark.slow
def test_the_command_makes_the_page_prints_its_path_and_opens_it_where_asked(
    copied: Callable[[str], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    path = copied("fair")
    assert called(str(path)) == 0
    assert capsys.readouterr().out.strip() == str(path / "report" / "index.html")
    assert opened == []
    assert called(str(path), "--open") == 0
    assert opened == [(path / "report" / "index.html").resolve().as_uri()]


# --- sections of steps --------------------------------------------------------------------------------


def with_steps(monkeypatch: pytest.MonkeyPatch, **sections_: Callable[[Any], list[str]]) -> None:
    """Steps that say this, besides the ones there are."""
    made = {
        name: Step(name, "thinking", "replay", lambda _: None, title=f"Why <{name}>", section=section)  # type: ignore[arg-type,return-value]
        for name, section in sections_.items()
    }
    monkeypatch.setattr(sections, "STEPS", {**sections.STEPS, **made})


def test_a_step_after_the_search_has_a_section_if_it_says_something(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_steps(
        monkeypatch,
        explain=lambda summary: [f"{summary['failures']} failures explained.", HOSTILE],
        silent=lambda summary: [],
    )
    found = page_of(copied("fair"), drawn=False)
    order = [attributes["id"] for attributes in found.of("section")]
    assert order[order.index("growth") + 1 : order.index("rounds")] == ["step-explain"]
    assert "step-silent" not in order
    assert found.text.count("Why <explain>") == 2, "in the list of sections and as a title"
    assert "0 failures explained." in found.text
    assert HOSTILE.replace("&amp;", "&") not in found.source
    assert " ".join(HOSTILE.split()) in found.text


def test_a_step_that_cannot_describe_a_run_costs_its_section_alone(
    copied: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_steps(monkeypatch, explain=lambda summary: [summary["explained"]])
    found = page_of(copied("fair"), drawn=False)
    assert "Not shown: the step explain cannot describe this run (KeyError: 'explained')" in found.text
    assert "To repeat it" in found.text


def test_the_replay_step_speaks_where_the_search_is_told(runs: Runs) -> None:
    found = runs.page("spread")
    assert "failures were replayed in the real environment" in found.text
    assert not [a for a in found.of("section") if a["id"].startswith("step-")]


# --- templates and drawings ---------------------------------------------------------------------------


def test_only_drawings_static_files_and_the_data_pass_the_templates_unescaped() -> None:
    templates = {
        file.relative_to(one_file.TEMPLATES).as_posix(): file.read_text() for file in one_file.TEMPLATES.rglob("*.html")
    }
    unescaped = [(name, word) for name, text in templates.items() for word in re.findall(r"[\w.]+(?=\|safe)", text)]
    assert sorted(unescaped) == [
        ("head.html", "style"),
        ("macros.html", "drawn.drawing"),
        ("page.html", "json"),
        ("page.html", "script"),
        ("repair.html", "figure"),
    ]
    assert not any("autoescape" in text for text in templates.values())
    assert [name for name, text in templates.items() if "<head>" in text] == ["head.html"]  # one for all pages


def test_every_section_has_a_template_of_its_own_and_files_lie_in_the_package(runs: Runs) -> None:
    shown = {attributes["id"] for attributes in runs.page("spread").of("section")}
    assert {file.stem for file in (one_file.TEMPLATES / "sections").iterdir()} == {*shown, "step", "curve"}
    assert {file.name for file in one_file.STATIC.iterdir()} == {"report.css", "report.js"}
    assert Path(one_file.__file__).parent == one_file.STATIC.parent == one_file.TEMPLATES.parent


def test_a_drawing_is_a_plain_element_with_ids_of_its_own() -> None:
    figure = Figure(figsize=(2, 1))
    axes = figure.add_subplot()
    axes.bar([0, 1], [1, 2], color=svg.ACCENT, edgecolor=svg.INK, hatch="//")  # a pattern is referred to in a style
    axes.plot([0, 1], [2, 1], marker="o", color=svg.QUIET)
    axes.set_title("a < b & c", fontweight="bold")
    with matplotlib.rc_context(svg.OURS):
        text = svg.element_of(figure, "mine", 'reads "aloud" <well>')
    found = Elements(text)
    assert [tag for tag, _ in found.found].count("svg") == 1
    assert not {"metadata", "style"} & {tag for tag, _ in found.found}
    assert "ns0" not in text
    assert found.found[0][1]["aria-label"] == 'reads "aloud" <well>'
    assert "a < b & c" in found.text
    ids = [attributes["id"] for _, attributes in found.found if "id" in attributes]
    references = re.findall(r"(?:url\(#|xlink:href=\"#)([^)\"]+)", text)
    assert len(ids) == len(set(ids)) > 0
    assert set(references) == set(ids)
    assert all(name.startswith("mine-") for name in ids)
    assert "fill: url(#mine-" in text
    assert {"var(--accent)", "var(--ink)", "var(--quiet)"} <= set(re.findall(r"var\(--\w+\)", text))
    assert "DejaVu" not in text


def test_fonts_of_older_matplotlibs_become_the_pages_own() -> None:
    font = "bold 9.5px 'DejaVu Sans', sans-serif"
    assert svg._in_the_pages_font("font", font) == [("font-weight", "bold"), ("font-size", "9.5px")]
    assert svg._in_the_pages_font("font-family", "'DejaVu Sans', sans-serif") == [("font-family", "inherit")]
