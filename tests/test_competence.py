"""What the numbers mean: who comes off badly, whether the team has learned, what chance would give."""

from __future__ import annotations

from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import engine_of
from test_search import chosen, search, team

from epymarl_fairtest.campaign.cautions import cautions, competence_rows, worst_off_sentence
from epymarl_fairtest.campaign.steps.random_team import compared
from epymarl_fairtest.core import episodes
from epymarl_fairtest.core.chance import unfair_by_chance
from epymarl_fairtest.core.episodes import operator_code, random_tests
from epymarl_fairtest.core.indices.jain import jfi
from epymarl_fairtest.core.judged import totals
from epymarl_fairtest.core.ledger import EXECUTION
from epymarl_fairtest.core.statistics import sign_test
from epymarl_fairtest.core.worst_off import ENOUGH, votes, worst_off
from epymarl_fairtest.report.view import view_of
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.strategies import STRATEGIES
from epymarl_fairtest.strategies.contract import Context, Request, Search, Strategy

# --- who comes off badly ------------------------------------------------------------------------------


def test_the_sign_test_sums_the_binomial_tail() -> None:
    for more, less in ((0, 0), (0, 5), (7, 2), (9, 9), (40, 3)):
        n = more + less
        tail = sum(comb(n, k) for k in range(more, n + 1)) / 2**n
        assert sign_test(more, less) == pytest.approx(tail)


def test_natural_failures_are_the_unit_and_too_few_give_way_to_one_failure_per_start() -> None:
    random = np.arange(40) < 20
    start = np.where(random, np.arange(40), 7)  # twenty failures that a search made of one start
    index = np.linspace(0.5, 0.3, 40)
    unfair = np.ones(40, bool)
    assert (votes(unfair, random, start, index).unit, votes(unfair, random, start, index).rows.tolist()) == (
        "natural failures",
        list(range(20)),
    )
    few = unfair & (~random | (np.arange(40) < ENOUGH - 1))
    chosen_ = votes(few, random, start, index)
    assert chosen_.unit == "starts"
    assert chosen_.rows.tolist() == [0, 1, 2, 3, 4, 5, 6, 8, 39]  # the lowest index of start 7 is the last one's


def received_by(worst: list[int], agents: int = 3) -> Any:
    received = np.ones((len(worst), agents))
    received[np.arange(len(worst)), worst] = 0.0
    return received


@pytest.mark.parametrize(
    ("worst", "named"),
    [
        ([2] * 30, 2),
        ([2] * 7, None),  # 2**-7 is more than 0.01 / 3
        ([2] * 9, 2),
        ([0] * 30 + [2] * 30, None),  # both more often than a third, and neither more often than the other
        ([0] * 13 + [1] * 3 + [2] * 22, None),  # 22 of 38, as a seed of pp-iql gave in executions of 13 starts
        ([], None),
    ],
    ids=str,
)
def test_an_agent_is_named_only_if_it_is_worse_off_than_every_other(worst: list[int], named: int | None) -> None:
    assert worst_off(received_by(worst), "starts").place == named


def test_chance_names_an_agent_in_less_than_one_of_a_hundred_runs() -> None:
    generator = np.random.default_rng(0)
    named = [worst_off(generator.exponential(size=(25, 3)), "starts").place for _ in range(100)]
    assert sum(one is not None for one in named) <= 1


def test_all_who_receive_least_count() -> None:
    found = worst_off(np.array([[0.0, 0.0, 1.0]] * 12), "starts")
    assert [one.count for one in found.least] == [12, 12, 0]
    assert found.place is None


def test_the_sentence_names_nobody_without_proof() -> None:
    told = worst_off_sentence(worst_off(received_by([0, 1, 1]), "starts").as_dict([2, 3, 5]))
    assert told.startswith("No agent is shown to be systematically worse off: of 3 starts with failures,")
    assert told.endswith("agent 2 receives least in 1, agent 3 in 2 and agent 5 in 0.")
    told = worst_off_sentence(worst_off(received_by([2] * 30), "natural failures").as_dict([2, 3, 5]))
    assert told.startswith("Agent 5 is systematically worse off: it receives least in 30 of 30 natural failures (100%")
    told = worst_off_sentence(worst_off(received_by([]), "starts").as_dict([]))
    assert told == "Not known: no failure begins at a start that nobody chose."


def near_copies(noise: float) -> Strategy:
    """One start, the most unfair of forty, again and again with a little noise: each copy has a seed of its own."""

    def propose(context: Context) -> Search:
        task, generator = context.task, context.generator("copies")
        judged = yield Request(random_tests(40, task.state_size, generator), EXECUTION)
        vector = task.start_vectors(judged.episodes.states[[int(np.nanargmin(judged.index))], 0])
        while True:
            tests = random_tests(50, task.state_size, generator)
            states, fine = task.starts_from(vector + generator.uniform(-noise, noise, (50, vector.shape[1])))
            tests.start_state, tests.operator = states, np.full(50, operator_code("state"), np.int8)
            yield Request(tests.take(fine), EXECUTION)

    return Strategy("near_copies", "Near-copies", propose, needs=("proposable",))


def test_near_copies_of_a_start_have_no_vote_and_are_one_start_of_the_page(tmp_path: Path) -> None:
    with STRATEGIES.having(near_copies(1e-6)):
        given = chosen(method="near_copies", budget=240, theta=0.85, natural_episodes=0, replay=0)
        summary = search(team(), given, tmp_path / "run").summary
        view = view_of(read_run(tmp_path / "run"))
    assert summary["roots"] > 100
    assert summary["worst_off"]["agent"] is None
    assert summary["worst_off"] == view.worst.as_dict([1, 2, 3])
    assert view.growth is not None
    assert view.growth.total == summary["distinct_starts"] < 40
    with np.load(tmp_path / "run" / "failures.npz") as file:
        first = {number: file["initial_state"][list(file["start"]).index(number)] for number in set(file["start"])}
        for start, state in zip(file["start"], file["initial_state"], strict=True):
            mine, other = (team().task.positions(one) for one in (state, first[start]))
            assert np.linalg.norm(mine - other, axis=-1).mean() <= team().task.distinct_distance


# --- has it learned -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_random_team_takes_even_actions_from_the_same_starts(tmp_path: Path) -> None:
    result = search(team(), chosen(method="random", budget=60, random_team=30), tmp_path / "run")
    competence, ledger = result.summary["competence"], result.summary["ledger"]
    random = competence["random_team"]
    assert (competence["executions"], random["starts"]) == (60, 30)
    assert ledger["random_team"]["episodes"] == 30
    assert ledger["random_team"]["steps"] == 30 * 8
    assert result.summary["charged_strict"] == result.summary["executed_episodes"] == 60
    with np.load(tmp_path / "run" / "executions.npz") as file:
        received, seeds = file["received"], file["root_seed"]
    assert competence["received"] == pytest.approx(received.mean(axis=0))
    assert competence["return"] == pytest.approx(received.sum(axis=1).mean())
    assert random["team_received"] == pytest.approx(received[:30].mean(axis=0))
    # An engine whose every action is explored does about the same from these starts.
    tests = episodes.tests_from_seeds(np.repeat(seeds[:30], 4), np.arange(120, dtype=np.uint64), team().task.state_size)
    explored = totals(engine_of("spread", epsilon=1.0).execute(tests).rewards[:, :8]).sum(axis=1).reshape(30, 4)
    assert random["return"] == pytest.approx(explored.mean(), abs=4 * explored.std() / np.sqrt(30))


def test_the_executions_of_a_search_do_not_change_with_the_random_team(tmp_path: Path) -> None:
    with_one = search(team(), chosen(), tmp_path / "with")
    without = search(team(), chosen(random_team=0), tmp_path / "without")
    assert without.summary["competence"]["random_team"] is None
    assert "random_team" not in without.summary["ledger"]
    names = ("failures", "executed_steps", "charged_strict", "charged_paper", "index_quantiles", "worst_off")
    assert [with_one.summary[name] for name in names] == [without.summary[name] for name in names]


def test_a_team_beats_a_random_one_only_with_proof() -> None:
    ones = np.ones((40, 2))
    assert compared(ones, 0 * ones)["beaten"]
    assert not compared(ones, ones)["beaten"]
    assert not compared(ones[:5], 0 * ones[:5])["beaten"]
    assert (compared(0 * ones, ones)["better"], compared(0 * ones, ones)["worse"]) == (0, 40)


@pytest.mark.parametrize(
    ("agents", "theta", "expected"), [(2, 0.8, 0.5), (2, 0.5, 0.0), (2, 1.0, 1.0), (3, 1 / 3, 0.0)]
)
def test_chance_is_what_geometry_says(agents: int, theta: float, expected: float) -> None:
    """Of two agents, one with share s: the index is at most 0.8 if s is at most 1/4 or at least 3/4."""
    assert unfair_by_chance(jfi, theta, agents) == pytest.approx(expected, abs=0.011)


def test_the_same_threshold_calls_more_unfair_among_more_agents() -> None:
    by_agents = [unfair_by_chance(jfi, 0.8, agents) for agents in (2, 3, 5, 10)]
    assert by_agents == sorted(by_agents)
    assert unfair_by_chance(jfi, 0.8, 5) == by_agents[2]


# --- what is said -------------------------------------------------------------------------------------


def summary(**changes: Any) -> dict[str, Any]:
    beaten = {"starts": 200, "received": [0.0, 0.1], "return": 0.1, "better": 190, "worse": 5, "beaten": True}
    competence = {
        "executions": 500, "received": [0.4, 0.5], "return": 0.9, "undefined": 0.0, "opposite_signs": 0.0,
        "least_return": None, "random_team": beaten,
    }  # fmt: skip
    known = {
        "index": "jfi", "theta": 0.8, "agents": [1, 2], "natural_rate": {"rate": 0.1}, "unfair_by_chance": 0.5,
        "sides": None,
    }  # fmt: skip
    inside = {name: value for name, value in changes.items() if name in competence}
    outside = {name: value for name, value in changes.items() if name not in competence}
    return {**known, "competence": {**competence, **inside}, **outside}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        (
            {"random_team": {"starts": 200, "better": 90, "worse": 88, "beaten": False}},
            "has not learned its task: from",
        ),
        ({"return": 0.1, "least_return": 0.7}, "it receives 0.10 of all there is (1), a competent team at least 0.70"),
        ({"undefined": 0.4}, "In 40% of the random executions no agent received anything"),
        ({"natural_rate": {"rate": 0.85}}, "calls most random executions unfair (85%). Of rewards divided at random"),
        ({"opposite_signs": 0.7}, "does not compare opponents, nor rewards of opposite signs: in 70%"),
        ({"sides": {"adversary": [1], "agent": [2, 3]}}, "Judge those alone that form one team: agents=[2, 3]."),
        ({"sides": {"speaker": [1], "listener": [2, 3]}}, None),
        ({"competence": None, "natural_rate": None, "unfair_by_chance": None}, None),
    ],
    ids=str,
)
def test_what_keeps_failures_from_meaning_what_they_seem_to_is_said(changes: dict[str, Any], told: str | None) -> None:
    found = cautions(summary(**changes))
    assert len(found) == (told is not None)
    assert all(told in sentence for sentence in found if told)


def test_the_terminal_gives_returns_beside_a_random_teams() -> None:
    rows = competence_rows(summary(opposite_signs=0.7, agents=[2, 3]))
    assert ("return", "team 0.900, a random team 0.100 from the same 200 starts") in rows
    assert ("  per agent", "agent 2 0.400, agent 3 0.500") in rows
    assert ("by chance", "rewards divided at random would be unfair in 50%") in rows
    assert [name for name, _ in rows].count("take care") == 1
