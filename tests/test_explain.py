"""Why failures happened: each answer against a slow way to find it, and what a user is told."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_search import chosen, search, team

from epymarl_fairtest import commands
from epymarl_fairtest.api.explaining import Loaded
from epymarl_fairtest.campaign.steps.contract import Aftermath, taken
from epymarl_fairtest.campaign.steps.explain import answers, decisions, explanations, sharing, words
from epymarl_fairtest.campaign.steps.explain.abreast import abreast
from epymarl_fairtest.campaign.steps.explain.arms import Both
from epymarl_fairtest.campaign.steps.explain.better import compared
from epymarl_fairtest.campaign.steps.explain.cases import Cases, Decisions, Plans, remembered
from epymarl_fairtest.campaign.steps.explain.cause import NOISE, POLICY, START, Found, causes
from epymarl_fairtest.campaign.steps.explain.choosing import different_failures
from epymarl_fairtest.campaign.steps.explain.commitment import SURE, commitment
from epymarl_fairtest.campaign.steps.explain.decisions import every_decision
from epymarl_fairtest.campaign.steps.explain.limits import USUAL, limit_of, steps_of
from epymarl_fairtest.campaign.steps.explain.onward import Onward
from epymarl_fairtest.campaign.steps.explain.responsibility import coalitions, shapley
from epymarl_fairtest.campaign.steps.explain.rules import learned
from epymarl_fairtest.campaign.steps.explain.smallest import _unfair
from epymarl_fairtest.core.episodes import Episodes, random_tests, replay_tests
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge
from epymarl_fairtest.core.statistics import rate_of
from epymarl_fairtest.engine.selection import make_engine, real_engine
from epymarl_fairtest.store.explanation import read_courses, read_explanation
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.team.contract import Team
from epymarl_fairtest.testing.teams import random_team

ALL = ("spread", "tag", "foraging")
KEYS = {"spread": "epymarl_fairtest:mpe-spread-v0", "foraging": "epymarl_fairtest:lbforaging-v0"}


def context_of(
    task: str, engine: str = "twin", theta: float = 0.9, subject: Team | None = None
) -> tuple[Aftermath, Any, Episodes]:
    """A team, what executes it, and a few of its failures."""
    subject, settings = subject or team(task), chosen(engine=engine, theta=theta)
    real = real_engine(subject, settings)
    runs = make_engine(subject, settings, lambda message: None, real=real)
    judge = Judge(INDICES["jfi"], theta)
    judged = judge(runs.execute(random_tests(200, subject.task.state_size, np.random.default_rng(0))))
    failures = judged.episodes.take(np.flatnonzero(judged.unfair)[:2])
    failures = replace(failures, id=np.arange(len(failures)), obs=failures.obs[..., :0])
    found: Any = None
    context = Aftermath(subject, settings, 0, judge, found, (0, 0), {}, real.seen, print, runs.name, runs.needs_obs)
    return context, runs, failures


def ask(asking: Any, engine: Any) -> Any:
    return taken(asking, lambda wanted: engine.execute(wanted.tests))


@pytest.mark.parametrize("task", ALL)
def test_a_changed_decision_is_the_failure_executed_again_with_that_action_forced(task: str) -> None:
    context, engine, failures = context_of(task)
    cases = Cases.of(context, failures)
    tried = ask(every_decision(cases), engine)
    available = context.team.available
    assert len(tried.case) == sum(int(n) for n in failures.length) * int((available.sum(axis=1) - 1).sum())
    for row in np.random.default_rng(1).choice(len(tried.case), 12, replace=False):
        case, step = tried.case[row], tried.decisions.step[row]
        slow = replay_tests(failures.take([case]))  # from the very beginning, nothing restored in between
        slow.forced = np.full((1, failures.limit, len(available)), -1, np.int16)
        slow.forced[0, step, tried.decisions.agent[row]] = tried.decisions.action[row]
        again = context.judge(engine.execute(slow))
        assert np.isclose(again.index[0], tried.compared.index[row], rtol=0, atol=0, equal_nan=True)
        before = context.judge.received(failures.rewards[[case]])
        assert compared(context.judge, before, again.received).better[0] == tried.compared.better[row]


def continued_cases(task: str, memory: bool) -> tuple[Cases, Any]:
    """Failures to be continued: without a memory, or with one that is known."""
    subject = team(task) if memory else random_team(KEYS[task], time_limit=10)
    context, engine, failures = context_of(task, subject=subject)
    cases = taken(remembered(Cases.of(context, failures)), lambda wanted: wanted.by(engine, engine))
    assert (cases.memory is not None) == memory
    return cases, engine


@pytest.mark.parametrize(("task", "memory"), [("spread", False), ("foraging", False), ("tag", True)])
def test_continuations_that_are_alike_give_what_each_gives_by_itself(task: str, memory: bool) -> None:
    cases, engine = continued_cases(task, memory)
    failures, draw = cases.episodes, np.random.default_rng(2)
    case = draw.integers(0, len(cases), 20)
    step = (draw.random(20) * failures.length[case]).astype(np.int64)
    agents = failures.actions.shape[2]
    agent = np.where(np.arange(20) < 4, -1, draw.integers(0, agents, 20))  # in the first four nobody decides
    one = Decisions(step, agent, draw.integers(0, 5, 20))
    plans = Plans(np.where(draw.random((20, *failures.actions.shape[1:])) < 0.1, 1, -1).astype(np.int16))
    drawn, some = cases.streams("here", 12)[case], draw.random((20, agents)) < 0.4
    ways: list[tuple[Any, Any]] = [(None, False), (one, False), (plans, False), (plans, some), (None, some)]
    forgetful = Cases.of(cases.context, failures)  # computes again what was remembered
    for changes, greedy in ways:
        given = (drawn, case, step, changes)
        together = taken(sharing.on_streams(cases, *given, greedy=greedy), lambda wanted: wanted.by(engine, engine))
        assert np.array_equal(together, ask(sharing.on_streams(forgetful, *given, greedy=greedy), engine))


@pytest.mark.parametrize(("task", "memory"), [("spread", False), ("foraging", False), ("tag", True)])
def test_a_failure_that_goes_on_is_executed_only_from_where_it_does_something_else(task: str, memory: bool) -> None:
    cases, engine = continued_cases(task, memory)
    case, step = (part.ravel() for part in np.indices((len(cases), cases.episodes.limit + 1)))
    begun = step < cases.episodes.length[case]
    drawn, executed = cases.streams("here", 6), []

    def execute(wanted: Any) -> Episodes:
        executed.append(wanted.by(engine, engine))
        return executed[-1]

    received = taken(sharing.going_on(cases, drawn, case, step), execute)
    forgetful = Cases.of(cases.context, cases.episodes)
    slow = ask(sharing.on_streams(forgetful, drawn[case[begun]], case[begun], step[begun]), engine)
    assert np.array_equal(received[begun], slow)
    assert np.array_equal(received[~begun], np.repeat(cases.received[case[~begun]][:, None], 6, axis=1))
    wanted_steps = int((cases.episodes.length[case[begun]] - step[begun]).sum()) * 6
    assert sum(part.executed_steps() for part in executed) < 0.8 * wanted_steps


@pytest.mark.parametrize(("task", "memory"), [("spread", False), ("foraging", False), ("tag", True)])
def test_questions_asked_abreast_have_the_answers_of_each_alone_in_fewer_requests(task: str, memory: bool) -> None:
    cases, engine = continued_cases(task, memory)
    requests: list[int] = []

    def execute(wanted: Any) -> Episodes:
        requests.append(len(wanted.tests))
        return wanted.by(engine, engine)

    def questions() -> list[Any]:
        starts = [(n, cases.episodes.states[n, 0]) for n in range(len(cases))]
        every, plans = np.arange(len(cases)), Plans(np.ones((len(cases), *cases.episodes.actions.shape[1:]), np.int16))
        greedy = np.ones((len(cases), cases.episodes.actions.shape[2]), bool)
        return [
            cases.outcomes(every, cases.episodes.length // 2),
            cases.outcomes(every, cases.first, None, plans),
            cases.outcomes(every, cases.first, greedy=greedy),
            _unfair(cases, starts, "here", range(0, 5)),  # begins without a past
        ]

    alone = [taken(one, execute) for one in questions()]
    together = taken(abreast(*questions()), execute)
    assert all(np.array_equal(one, other) for one, other in zip(alone, together, strict=True))
    assert requests[4:] == [sum(requests[:4])]


@pytest.mark.parametrize(
    ("few", "requests"), [(0, [(2, 16), (2, 16), (1, 1), (1, 1)]), (200, [(2, 50)]), (10**6, [(2, 256)])]
)
def test_a_slip_is_looked_at_again_until_it_is_clear_and_no_other_decision_is(
    few: int, requests: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, _, failures = context_of("spread")
    cases, two = Cases.of(context, failures), np.zeros(2, np.int64)
    unfair_before, asked = [4, 3, 6], []  # of 16 streams each: 0.25, 0.22 of 32, 0.26 of 34

    def arms(cases: Cases, case: Any, changes: Decisions, drawn: Any) -> Any:
        asked.append((len(case), drawn.shape[1]))
        before = np.concatenate([np.arange(16) < count for count in (*unfair_before, *[0] * 13)])
        unfair = np.zeros((2, len(case), 256), bool)
        unfair[0] = before
        received = np.zeros((2, len(case), 256, cases.received.shape[1]))
        received[1] = 1.0  # everybody gains
        begun = sum(streams for _, streams in asked[:-1])
        return Both(unfair, received).streams(slice(begun, begun + drawn.shape[1]))
        yield

    monkeypatch.setattr(decisions, "FEW", few)
    monkeypatch.setattr(decisions, "both_arms", arms)
    same = compared(context.judge, cases.received[two], cases.received[two])
    slip = np.array([True, False])
    shown = ask(decisions._measured(cases, decisions.Tried(two, Decisions(two, two, two), same, slip, ~slip)), None)
    assert asked == requests  # of few decisions more streams at once; the same comes out
    assert [one.streams for one in shown] == [34]


def test_the_streams_of_a_failure_do_not_depend_on_who_else_is_explained() -> None:
    context, _, failures = context_of("spread")
    both, last = Cases.of(context, failures), Cases.of(context, failures.take([1]))
    assert np.array_equal(both.streams("here", 8)[1], last.streams("here", 8)[0])
    assert len(np.unique(np.concatenate([both.streams("here", 8), both.streams("there", 8)]))) == 4 * 8


def test_a_failure_is_settled_where_no_later_step_is_open() -> None:
    context, engine, failures = context_of("spread")
    cases = Cases.of(context, failures)
    found = ask(commitment(cases, Onward.of(cases)), engine)
    for case, curve in enumerate(found.p_unfair):
        at = int(found.committed_at[case])
        known = np.flatnonzero(~np.isnan(curve))
        assert all(curve[t] >= SURE for t in known if t >= at)
        assert at == 0 or any(curve[t] < SURE for t in known if t < at)


@pytest.mark.parametrize(
    ("setting", "times", "held_to"),
    [(200, 0.7, None), (200, 2.0, 100), (1000, 2.0, 500), (200, 50.0, 10), (5, 50.0, None), ("all", 50.0, None)],
)
def test_where_a_failure_takes_more_work_fewer_are_explained_and_it_is_said(
    setting: int | str, times: float, held_to: int | None
) -> None:
    context, _, failures = context_of("tag")
    nothing: Any = Loaded(failures.take(slice(0, 0)))
    context = replace(context, settings=replace(context.settings, explain=setting), recorded=nothing)
    limit = limit_of(context, times * USUAL)
    assert limit.held_to == held_to
    nobody = np.empty(0, np.int64)
    outcome = taken(explanations(context, nobody, limit), lambda wanted: pytest.fail("nothing to execute"))
    document = outcome.documents["explain.json"]
    assert (document["held_to"], document["memory"]) == (held_to, True)
    full = {**document, "explained": held_to or 30, "causes": {"start": held_to or 30}, "with_decision": 0}
    told = (
        f"one takes {times:.0f} times the usual work" if times >= 10 else f"one takes {times:.1f} times the usual work"
    )
    assert (told in words.summary_rows(full)[0][1]) == (held_to is not None)
    assert any("with a memory a step takes ten times" in note for note in words.notes(full)) == (held_to is not None)


@pytest.mark.parametrize(("memory", "fewest"), [(False, 20), (True, 10)])
def test_some_failures_are_explained_in_any_case_and_fewer_with_a_memory(memory: bool, fewest: int) -> None:
    subject = None if memory else random_team(KEYS["spread"], time_limit=10)
    context, _, _ = context_of("spread", subject=subject)
    context = replace(context, settings=replace(context.settings, explain=200))
    assert limit_of(context, 1000.0 * USUAL).held_to == fewest


def test_the_work_of_a_failure_is_what_its_single_decisions_execute() -> None:
    subject = random_team(KEYS["spread"], time_limit=10)
    context, engine, failures = context_of("spread", subject=subject)
    executed = []

    def execute(wanted: Any) -> Episodes:
        executed.append(wanted.by(engine, engine))
        return executed[-1]

    taken(every_decision(Cases.of(context, failures)), execute)
    assert steps_of(context, failures) == sum(part.executed_steps() for part in executed)
    remembering, _, _ = context_of("spread")
    assert steps_of(remembering, failures) == 10 * steps_of(context, failures)


@pytest.mark.parametrize("most", [4, 20])
def test_of_many_failures_the_worst_different_ones_are_explained_and_others_of_all_the_rest(most: int) -> None:
    context, engine, _ = context_of("spread", subject=random_team(KEYS["spread"], time_limit=10))
    judged = context.judge(engine.execute(random_tests(300, context.team.task.state_size, np.random.default_rng(0))))
    found: Any = Loaded(judged.episodes)
    settings = replace(context.settings, explain=most)
    context = replace(context, recorded=found, settings=settings, engine="twin")
    rows, limit = different_failures(context)
    assert len(rows) == len(set(rows.tolist())) == most
    assert limit.held_to is None
    rank = np.argsort(np.argsort(judged.index))[rows]
    assert (rank < 20).sum() >= most // 4  # the page shows five of the worst
    assert most == 4 or rank.max() > 200
    every, _ = different_failures(replace(context, settings=replace(settings, explain="all")))
    assert len(every) > 100


def test_the_cause_follows_the_three_rules() -> None:
    fixed, nothing = Found("one decision", 300), Found(None, 300)
    assert causes([0.05, 0.05, 0.9, 0.9], [False, True, True, True], [fixed, fixed, fixed, nothing]) == [
        NOISE, POLICY, POLICY, START,
    ]  # fmt: skip


def test_only_what_helps_the_worst_off_and_hardly_costs_the_team_is_better() -> None:
    judge = Judge(INDICES["jfi"], 0.8)
    before = np.array([[9.0, 1.0]] * 4)
    now = np.array([[5.0, 5.0], [1.0, 1.0], [4.0, 5.0], [5.2, 4.7]])  # even; taken away; costs a tenth; costs a little
    assert compared(judge, before, now).better.tolist() == [True, False, False, True]


def test_shapley_values_are_the_mean_over_all_orders() -> None:
    generator = np.random.default_rng(0)
    worth = {some: float(generator.random()) for some in coalitions([0, 2, 3, 5])}
    value, _ = shapley([0, 2, 3, 5], worth.__getitem__)
    for agent in (0, 2, 3, 5):
        slow = [
            worth[frozenset(order[: order.index(agent) + 1])] - worth[frozenset(order[: order.index(agent)])]
            for order in permutations([0, 2, 3, 5])
        ]
        assert np.isclose(value[agent], np.mean(slow))
    orders = [list(generator.permutation([0, 2, 3, 5])) for _ in range(2000)]
    sampled, error = shapley([0, 2, 3, 5], worth.__getitem__, orders)
    assert all(abs(sampled[agent] - value[agent]) < 3 * error[agent] for agent in value)


def test_a_rule_finds_what_makes_executions_unfair() -> None:
    generator = np.random.default_rng(0)
    features = {"distance": generator.random(3000), "level": generator.random(3000), "noise": generator.random(3000)}
    unfair = (features["distance"] > 0.8) & (features["level"] <= 0.3)
    (rule, *_) = learned(features, unfair, 3)
    assert {(one.feature, one.above) for one in rule.conditions} == {("distance", True), ("level", False)}
    covered = rule.holds(features)
    assert unfair[covered].mean() > 0.8
    assert covered[unfair].mean() > 0.8


@pytest.mark.slow
def test_both_engines_give_the_same_answers() -> None:
    explanation = []
    for name in ("twin", "lockstep"):
        context, engine, failures = context_of("spread", name)
        explanation.append(ask(answers(Cases.of(context, failures.take([0]))), engine).entries())
    assert explanation[0] == explanation[1]


# --- a run --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained") / "run"
    # 12 of them, for one takes 3.5 times the usual work
    search(team(), chosen(method="random", budget=150, theta=0.9, engine="twin", explain=42), folder)
    return folder


def test_explain_json_says_what_it_promises_and_the_table_sums_it_up(run: Path) -> None:
    explanation = read_explanation(run)
    assert explanation is not None
    assert explanation["explained"] == len(explanation["failures"]) == 12 == sum(explanation["causes"].values())
    summary = json.loads((run / "summary.json").read_text())
    assert summary["explain"]["causes"] == explanation["causes"]
    assert summary["ledger"]["explain"]["episodes"] > 0
    assert summary["charged_strict"] == 150  # nobody paid for it
    rows = dict(words.summary_rows(summary["explain"]))
    assert rows["why"].startswith("12 failures explained")
    assert len(rows) == 3
    for entry in explanation["failures"]:
        assert entry["p_unfair_low"] <= entry["p_unfair"] <= entry["p_unfair_high"]
        for one in entry["decisions"]:
            assert one["p_unfair_before"] - one["p_unfair"] >= 0.25
            assert one["worst_off_gain"] > 0
            assert one["team_change"] >= -0.02
            assert one["action"] != one["instead_of"]
            assert entry["start_step"] <= one["step"] < entry["length"]
    for one in explanation["situations"]:
        assert one["precision"] >= 2 * one["base_rate"]
        exact = rate_of(round(one["precision"] * one["covered"]), one["covered"])
        assert np.allclose([one["precision_low"], one["precision_high"]], [exact.low, exact.high], rtol=1e-5)


def test_a_rule_is_told_with_the_interval_of_its_precision_where_the_run_knows_it() -> None:
    known = {"rule": "it rains", "precision": 0.5, "base_rate": 0.25, "precision_low": 0.412, "precision_high": 0.588}
    told = {"explained": 1, "causes": {"start": 1}, "with_decision": 0, "situation": known}
    assert words.summary_rows(told)[-1][1] == "it rains: 50% unfair (41% to 59%) instead of 25%"
    old = {key: value for key, value in known.items() if key not in ("precision_low", "precision_high")}
    assert words.summary_rows({**told, "situation": old})[-1][1] == "it rains: 50% unfair instead of 25%"


def test_what_is_nothing_in_the_digits_shown_is_no_loss() -> None:
    assert [words.signed(value, ".1f") for value in (-0.04, 0.0, 0.04, -0.06)] == ["+0.0", "+0.0", "+0.0", "\u22120.1"]
    assert words.signed(-1e-9, ".2g") == "\u22121e\u221209"


def test_failures_csv_knows_the_cause_and_the_decisive_step_of_what_was_explained(run: Path) -> None:
    with np.load(run / "failures.npz") as file:
        cause = dict(
            zip(
                file["id"].tolist(),
                zip(file["cause"].tolist(), file["decisive_step"].tolist(), strict=False),
                strict=True,
            )
        )
    explanation = read_explanation(run)
    assert explanation is not None
    known = {
        e["id"]: (e["cause"], e["decisions"][0]["step"] if e["decisions"] else -1) for e in explanation["failures"]
    }
    assert {number: found for number, found in cause.items() if found[0]} == known


def test_the_other_course_is_fair_and_the_same_up_to_its_decision(run: Path) -> None:
    record, courses = read_run(run), read_courses(run, "what_if")
    with np.load(run / "failures.npz") as file:
        rows = {number: row for row, number in enumerate(file["id"].tolist())}
        states, scores = file["states"], file["q"]
    judge = Judge(INDICES["jfi"], record.theta)
    received = judge.received(courses["rewards"])
    assert not judge.unfair(received).any()
    for row, number in enumerate(courses["id"].tolist()):
        step = int(courses["step"][row])
        assert np.array_equal(courses["states"][row, : step + 1], states[rows[number], : step + 1])
        seen = step + 1  # at the decision itself everybody sees the same, and thinks the same of it
        assert np.array_equal(courses["q"][row, :seen], scores[rows[number], :seen])
        assert courses["q"][row, : courses["length"][row]].any(axis=(1, 2)).all(), "every step has scores"


def test_other_courses_of_an_earlier_explanation_are_read_without_scores(run: Path, tmp_path: Path) -> None:
    with np.load(run / "explain.npz") as file:
        np.savez(tmp_path / "explain.npz", **{name: file[name] for name in file.files if not name.endswith("_q")})
    earlier, now = read_courses(tmp_path, "what_if"), read_courses(run, "what_if")
    assert earlier.keys() == now.keys() - {"q"}


@pytest.mark.slow
def test_explaining_a_finished_run_gives_the_same_file_and_keeps_the_run_whole(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    before = (run / "explain.json").read_bytes()
    monkeypatch.setattr(
        "epymarl_fairtest.api.explaining.team_of_run", lambda *given: team()
    )  # its folder was temporary
    assert commands.main(["explain", str(run), "--set", "engine=twin"]) == 0
    assert (run / "explain.json").read_bytes() == before
    assert read_run(run).explanation is not None  # checksums follow
    assert "12 failures explained" in capsys.readouterr().out
    wanted = json.loads(before)["failures"][3]["id"]
    assert commands.main(["explain", str(run), str(wanted), "--json", "--set", "engine=twin"]) == 0
    (alone,) = json.loads(capsys.readouterr().out)["failures"]
    same = [entry for entry in json.loads(before)["failures"] if entry["id"] == wanted]
    assert {**alone, "smallest": None} == {**same[0], "smallest": None}  # whoever else is explained does not matter


@pytest.mark.parametrize(
    ("words_given", "said"),
    [
        (["explain"], "needs a RUN"),
        (["explain", "--policy", "nowhere"], "needs a RUN"),
        (["explain", "{run}", "999999"], "is not a failure of"),
        (["explain", "{run}", "--seed", "3"], "leave --seed"),
        (["explain", "{run}", "--set", "theta=0.5"], "everything else is the run's own"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_a_sentence(
    run: Path, words_given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert commands.main([word.format(run=run) for word in words_given]) != 0
    assert said in capsys.readouterr().err


def test_explain_0_leaves_no_trace(tmp_path: Path) -> None:
    result = search(team(), chosen(method="random", budget=60, theta=0.9, engine="twin", explain=0), tmp_path / "run")
    assert result.summary["explain"] is None
    assert "explain" not in result.summary["ledger"]
    assert not (tmp_path / "run" / "explain.json").exists()


@pytest.mark.slow
def test_the_examples_of_the_page_are_what_the_commands_say(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "explaining.md").read_text()
    root = Path(__file__).resolve().parents[1]
    examples = re.findall(r"explain --policy (\S+) --seed (\d+)\n```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 3
    for policy, seed, shown in examples:
        assert commands.main(["explain", "--policy", str(root / policy), "--seed", seed, "--set", "engine=twin"]) == 0
        said = capsys.readouterr().out.splitlines()
        assert all(line in said for line in shown.splitlines())
