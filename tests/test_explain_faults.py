"""Explanations of faults that somebody planted, of odd teams, and the same explanation whoever asks, and when."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import policy_folder
from test_explain import ask
from test_search import TESTS, Recording, chosen, search, team, walkers

from epymarl_fairtest import commands
from epymarl_fairtest.campaign.run import run
from epymarl_fairtest.campaign.steps.contract import Aftermath
from epymarl_fairtest.campaign.steps.explain import answers
from epymarl_fairtest.campaign.steps.explain.arms import Arms, Decision
from epymarl_fairtest.campaign.steps.explain.better import Compared
from epymarl_fairtest.campaign.steps.explain.cases import Cases, Decisions
from epymarl_fairtest.campaign.steps.explain.decisions import CHECKED, Tried, _most_even, _slips, preference
from epymarl_fairtest.core.episodes import Episodes, Tests, random_tests
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.store.explanation import read_explanation
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.team.saved import saved_team
from epymarl_fairtest.testing.teams import random_team

ROOT = Path(__file__).resolve().parents[1]
LITTLE: dict[str, Any] = {"method": "random", "budget": 40, "theta": 0.9, "explain": 2}

# --- planted faults -----------------------------------------------------------------------------------


def shipped(name: str = "mpe-qmix") -> tuple[Aftermath, Any]:
    subject, settings = saved_team(ROOT / "policies" / name, "env"), chosen(engine="twin")
    engine = make_engine(subject, settings, lambda message: None)
    engine.keeps_obs = False
    found: Any = None
    judge = Judge(INDICES["jfi"], subject.task.theta)
    return Aftermath(subject, settings, 0, judge, found, (0, 0), {}, lambda some: some, print), engine


class Faulty:
    """An engine whose agents do `wrong` (steps, agents; -1: as they choose) unless a test says otherwise."""

    def __init__(self, engine: Any, wrong: Any) -> None:
        self._engine, self._wrong = engine, wrong

    def execute(self, tests: Tests) -> Episodes:
        wrong = np.broadcast_to(self._wrong, (len(tests), *self._wrong.shape))
        if tests.greedy is not None:
            wrong = np.where(tests.greedy[:, None, :], -1, wrong)
        forced = wrong if tests.forced is None else np.where(tests.forced >= 0, tests.forced, wrong)
        return self._engine.execute(replace(tests, forced=forced.astype(np.int16)))


def made_unfair(context: Aftermath, engine: Any, faulty: Faulty, count: int) -> Episodes:
    """Fair random executions that are unfair with the fault."""
    tests = random_tests(600, context.team.task.state_size, np.random.default_rng(3))
    before, after = context.judge(engine.execute(tests)), context.judge(faulty.execute(tests))
    episodes = after.episodes.take(np.flatnonzero(after.unfair & ~before.unfair)[:count])
    assert len(episodes) == count
    return replace(episodes, id=np.arange(count))


def test_a_planted_wrong_decision_is_among_those_that_are_shown() -> None:
    context, engine = shipped()
    wrong = np.full((context.team.limit, 3), -1)
    wrong[2, 1] = 1
    faulty = Faulty(engine, wrong)
    found = ask(answers(Cases.of(context, made_unfair(context, engine, faulty, 3))), faulty)
    shown = {one.case for one in found.decisions if (one.step, one.agent, one.instead_of) == (2, 1, 1)}
    assert shown, "none of three planted decisions is shown"


@pytest.mark.parametrize("agent", [0, 2])
def test_an_agent_that_does_not_act_as_the_teams_policy_says_is_named(agent: int) -> None:
    context, engine = shipped()
    wrong = np.full((context.team.limit, 3), -1)
    wrong[:, agent] = 1  # always to the left
    faulty = Faulty(engine, wrong)
    found = ask(answers(Cases.of(context, made_unfair(context, engine, faulty, 6))), faulty)
    named = [found.responsible[case].agent for case in range(6) if case in found.responsible]
    assert named.count(agent) >= 5
    assert found.responsible[0].by[agent] == "the team's own policy"


def test_no_slip_is_left_out_for_being_one_of_many() -> None:
    context, engine = shipped()
    one = context.judge(engine.execute(random_tests(1, context.team.task.state_size, np.random.default_rng(3))))
    cases = Cases.of(context, replace(one.episodes, id=np.zeros(1, np.int64)))
    count = 4 * CHECKED
    index, slip = np.linspace(0.99, 0.81, count), np.arange(count) >= 2 * CHECKED  # the slips are the least even ones
    compared = Compared(index, np.ones(count, bool), np.ones(count), np.zeros(count))
    zeros = np.zeros(count, np.int64)
    tried = Tried(zeros, Decisions(zeros, zeros, np.arange(count)), compared, slip, ~slip)
    assert _most_even(cases, tried).tolist() == [*range(CHECKED)]
    late = Decisions(np.where(np.arange(count) == CHECKED, 20, 0), zeros, np.arange(count))  # little comes after it
    assert CHECKED in _most_even(cases, replace(tried, decisions=late))


def test_a_slip_is_put_right_by_the_teams_own_choice_and_the_next_best_is_kept() -> None:
    context, engine = shipped()
    episodes = engine.execute(random_tests(1, context.team.task.state_size, np.random.default_rng(0)))
    own = int(episodes.q[0, 0, 0].argmax())
    episodes.actions[0, 0, 0] = taken = (own + 1) % 5
    cases, zeros = Cases.of(context, episodes), np.zeros(4, np.int64)
    action = np.array([one for one in range(5) if one != taken])
    index = np.where(action == own, 0.85, 0.9 + 0.01 * action)
    for better in (np.ones(4, bool), action != own, action == own):
        result = Compared(index, better, np.ones(4), np.zeros(4))
        slip, spare = _slips(cases, zeros, Decisions(zeros, zeros, action), result)
        first = own if better[action == own].all() else action[better].max()
        assert action[slip].tolist() == [first]
        assert action[spare].tolist() == ([action[action != own].max()] if better.all() else [])


def test_the_first_shown_decision_is_the_last_slip_that_leaves_fair_the_likelier_outcome() -> None:
    slip = Decision(0, 5, 0, 1, 2, True, 32, 0.9, 0.4, 1.0, 0.0)
    choice = replace(slip, slip=False, p_unfair=0.0)
    ordered = [
        slip,
        replace(slip, step=3, p_unfair=0.1),  # after it there was another one
        replace(slip, step=8, p_before=1.0, p_unfair=0.6),  # put right, unfair is still the likelier outcome
        choice,
        replace(choice, step=9, p_unfair=0.1),
        replace(choice, step=7, p_before=1.0, p_unfair=0.6),
        replace(slip, case=1),
    ]
    assert sorted(ordered[3:] + ordered[:3], key=preference) == ordered


def test_a_slip_is_put_right_by_what_the_teams_policy_says() -> None:
    context, engine = shipped()
    episodes = engine.execute(random_tests(1, context.team.task.state_size, np.random.default_rng(0)))
    own = episodes.q[0, 0].argmax(axis=1)
    episodes.actions[0, 0] = [(own[0] + 1) % 5, (own[1] + 1) % 5, own[2]]
    cases, zeros = Cases.of(context, episodes), np.zeros(3, np.int64)
    others = Decisions(zeros, np.arange(3), np.array([own[0], (own[1] + 2) % 5, (own[2] + 1) % 5]))
    found = Arms.none(cases, 3).decisions(cases, zeros, others)
    assert [one.slip for one in found] == [True, False, False]


# --- the same, whoever asks and when ------------------------------------------------------------------


def explained_in(path: str) -> None:
    """A run in a process of its own."""
    search(team(), chosen(**LITTLE), Path(path))


@pytest.mark.fresh
def test_another_process_gives_the_same_explanation(tmp_path: Path) -> None:
    explained_in(str(tmp_path / "here"))
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    command = f"import test_explain_faults as t; t.explained_in({str(tmp_path / 'there')!r})"
    environment = {**os.environ, "PYTHONHASHSEED": "random", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-W", "ignore", "-c", command], env=environment, check=True)
    for name in ("explain.json", "explain.npz"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes()


@pytest.mark.slow
def test_a_resumed_run_gives_the_same_explanation(tmp_path: Path) -> None:
    given = chosen(**LITTLE, batch=20)
    search(team(), given, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(team(), given, Recording(tmp_path / "cut", stop_after=0), seed=5, command="test", warn=lambda _: None)
    assert not (tmp_path / "cut" / "explain.json").exists()
    run(team(), given, RunFolder.resume(tmp_path / "cut"), seed=5, command="test", warn=lambda _: None)
    for name in ("explain.json", "explain.npz"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


# --- odd teams and bad input --------------------------------------------------------------------------


@pytest.mark.slow
def test_what_cannot_be_restored_is_explained_by_repeating_actions_and_says_so(tmp_path: Path) -> None:
    search(walkers(), chosen(theta=0.9, epsilon=0.3, explain=2), tmp_path / "run")
    explanation = read_explanation(tmp_path / "run")
    assert explanation is not None
    assert explanation["explained"] == 2
    assert not explanation["restored"]
    assert all(entry["deviations_tried"] >= 10 * 2 * 2 for entry in explanation["failures"])
    assert all(entry["smallest"] is None for entry in explanation["failures"])


@pytest.mark.slow
def test_the_page_says_that_nothing_could_be_restored(tmp_path: Path, pages: None) -> None:
    from epymarl_fairtest.report.page import make_report

    search(walkers(), chosen(theta=0.9, epsilon=0.3, explain=1), tmp_path / "run")
    assert "repeats the recorded actions" in make_report(tmp_path / "run").read_text()


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(lambda: walkers(limit=1), id="cannot be restored"),
        pytest.param(lambda: team("spread", 1), id="spread"),
    ],
)
def test_episodes_of_one_step_are_explained(subject: Any, tmp_path: Path) -> None:
    search(subject(), chosen(**LITTLE), tmp_path / "run")
    explanation = read_explanation(tmp_path / "run")
    assert explanation is not None
    assert explanation["explained"] == 2
    assert {entry["length"] for entry in explanation["failures"]} == {1}


@pytest.mark.slow
def test_more_than_20_agents_are_explained(tmp_path: Path) -> None:
    many = random_team("epymarl_fairtest:mpe-spread-v0", time_limit=2, env_args={"N": 21})
    search(many, chosen(**{**LITTLE, "budget": 10, "explain": 1}), tmp_path / "run")
    explanation = read_explanation(tmp_path / "run")
    assert explanation is not None
    assert explanation["failures"][0]["deviations_tried"] >= 2 * 21 * 4


@pytest.fixture
def saved_run(tmp_path: Path) -> tuple[Path, Path]:
    """A run of a saved team, and the team's folder."""
    folder = policy_folder(tmp_path / "team", "spread", "mlp", time_limit=5)
    words = ["run", "--policy", str(folder), "--out", str(tmp_path / "run")]
    settings = ["method=random", "budget=20", "theta=0.9", "explain=1", "engine=twin", "report=False", "random_team=0"]
    assert commands.main([*words, *(word for one in settings for word in ("--set", one))]) == 0
    return tmp_path / "run", folder


def test_a_team_that_changed_since_the_run_is_refused(
    saved_run: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = saved_run
    before = (path / "explain.json").read_bytes()
    other = policy_folder(tmp_path / "other", "spread", "mlp", time_limit=5)
    import torch

    weights = {name: values * 2 for name, values in torch.load(other / "agent.th", weights_only=True).items()}
    torch.save(weights, folder / "agent.th")
    assert commands.main(["explain", str(path)]) != 0
    assert "other weights" in capsys.readouterr().err
    assert commands.main(["explain", str(path), "--policy", str(folder)]) != 0
    assert "does not explain what the other one did" in capsys.readouterr().err.replace("\n", " ")
    assert (path / "explain.json").read_bytes() == before


@pytest.mark.slow
def test_to_explain_nothing_is_refused_and_what_was_explained_stays(
    saved_run: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = saved_run
    before = json.loads((path / "explain.json").read_text())
    assert commands.main(["explain", str(path), "--set", "explain=0"]) != 0
    assert "explain=0 explains nothing" in capsys.readouterr().err
    assert json.loads((path / "explain.json").read_text()) == before


@pytest.mark.slow  # the real environment plays the smallest examples, too; test_explain.py has the answers alone
def test_both_engines_explain_the_same_failures_alike(tmp_path: Path) -> None:
    explanation = []
    for engine in ("twin", "lockstep"):
        search(team("spread", 2), chosen(**{**LITTLE, "budget": 20, "explain": 1}, engine=engine), tmp_path / engine)
        explanation.append(read_explanation(tmp_path / engine))
    assert explanation[0] is not None
    assert explanation[1] is not None
    assert explanation[0]["failures"] == explanation[1]["failures"]
    assert explanation[0]["causes"] == explanation[1]["causes"]
