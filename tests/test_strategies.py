"""What every strategy says about itself, what it refuses, and how its options are given."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support
from support import environment
from test_search import check, chosen, search, team

from epymarl_fairtest.core.episodes import Episodes, operator_code
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.ledger import PURPOSES
from epymarl_fairtest.core.scores import scaled_temperature
from epymarl_fairtest.predictor import Traces
from epymarl_fairtest.settings import FIELDS, Settings, fields_of, flat_names, presets, setting, whole
from epymarl_fairtest.strategies import STRATEGIES, Strategy, configure, strategy_of
from epymarl_fairtest.strategies.fairtest.fitness import decision_certainty
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.contract import ABILITIES
from epymarl_fairtest.tasks.generic.rules import GenericTask

every_method = pytest.mark.parametrize("method", support.every_method())
FLAT = [(name, option) for name in STRATEGIES for option in sorted(flat_names(STRATEGIES[name].options))]
every_flat_option = pytest.mark.parametrize(("method", "option"), FLAT)


# --- which executions are random ----------------------------------------------------------------------


@every_method
def test_random_purposes_are_purposes_of_the_ledger(method: str) -> None:
    strategy = STRATEGIES[method]
    assert strategy.name == method
    assert set(strategy.random) <= set(PURPOSES)
    assert set(strategy.needs) <= set(ABILITIES)


def test_the_purposes_of_random_executions_are_the_ones_they_always_were() -> None:
    found = {name: set(strategy.random) for name, strategy in STRATEGIES.items() if strategy.random}
    assert found == {"random": {"execution"}, "scout": {"unguided"}, "fairtest": {"predictor", "candidate"}}


@pytest.mark.slow
@every_method
def test_executions_are_marked_as_random_by_their_purpose_and_all_of_them_are(method: str, tmp_path: Path) -> None:
    """Nobody chose their starts, nothing was forced, and the team explored as it does."""
    result = search(team(), chosen(method=method, budget=140), tmp_path / "run")
    with np.load(tmp_path / "run" / "executions.npz") as file:
        random, purpose, operator = file["random"], file["purpose"], file["operator"]
    assert random.dtype == bool
    assert random.tolist() == [name in STRATEGIES[method].random for name in purpose]
    assert random.any() == bool(STRATEGIES[method].random)
    executed = Episodes.concatenate([episodes for _, episodes in result.folder.batches])
    assert set(operator[random].tolist()) <= {"seed"}
    assert (executed.operator[random] == operator_code("seed")).all()
    assert (executed.parent[random] == -1).all()
    assert (executed.start_step[random] == 0).all()


# --- what is refused before training ------------------------------------------------------------------


@every_method
def test_a_strategy_accepts_its_defaults_on_a_task_that_offers_everything(method: str) -> None:
    given = configure({"method": method})
    strategy_of(given).check_settings(given)
    strategy_of(given).check_settings(given, task_for(environment("spread")))


@every_method
def test_a_need_that_the_task_does_not_fulfil_is_refused_by_name(method: str) -> None:
    given, strategy = configure({"method": method}), STRATEGIES[method]
    task = GenericTask(environment("spread"))
    lacking = [ABILITIES[need] for need in strategy.needs if not getattr(task, need)]
    if not lacking:
        return strategy.check_settings(given, task)
    with pytest.raises(FairTestError, match=f"method={method!r} needs {lacking[0]}.*'generic'.*method=random"):
        strategy.check_settings(given, task)


def no_search(context: Any) -> Any:
    raise AssertionError("nothing is searched here")


class Refusal(Exception):
    pass


def test_a_strategys_own_check_sees_the_settings_and_its_own_options() -> None:
    seen: list[Any] = []

    def check_both(settings: Settings, options: Any) -> None:
        seen.append((settings.budget, options.batch))
        if options.batch > settings.budget:
            raise Refusal

    schema = STRATEGIES["random"].options
    strategy = Strategy("mine", "Mine", no_search, schema, check=check_both)
    given = configure({"method": "random", "budget": 300})
    strategy.check_settings(given)
    assert seen == [(300, 256)]
    with pytest.raises(Refusal):
        strategy.check_settings(replace(given, budget=255))
    with pytest.raises(FairTestError, match=r"options\.pool is not an option of method 'mine'"):
        strategy.check_settings(replace(given, options={"pool": 3}))


def test_without_options_and_a_check_of_its_own_everything_is_accepted() -> None:
    strategy = Strategy("mine", "Mine", no_search)
    strategy.check_settings(replace(configure({}), options={}), GenericTask(environment("spread")))
    assert strategy.random == strategy.needs == ()
    with pytest.raises(FairTestError, match=r"is not an option of method 'mine'\. It has none"):
        strategy.check_settings(configure({}))


@every_method
def test_a_budget_that_calibration_uses_up_is_refused_and_a_larger_one_is_not(method: str) -> None:
    auto = {"method": method, "theta": "auto", "calibration_episodes": 500, "accounting": "strict"}
    with pytest.raises(FairTestError, match=r"budget=500 (does not pay|leaves nothing)"):
        check(configure({**auto, "budget": 500}))
    check(configure({**auto, "budget": 1000}))


# --- options ------------------------------------------------------------------------------------------


def another(option: Any) -> Any:
    """A value that the option's rule allows, other than its default."""
    rule = option.metadata["rule"]
    for value in (7, 0.5, False, "fronts", "uniform", "scout", "f1,f3", [], 3.5):
        if rule.holds(value) and value != option.default:
            return value
    raise AssertionError(f"no value for {option.name}: {rule.allowed}")


@every_flat_option
def test_a_flat_name_reaches_the_option(method: str, option: str) -> None:
    value = another(fields_of(STRATEGIES[method].options)[option])
    flat = configure({"method": method, option: value})
    assert flat.options[option] == value
    assert flat == configure({"method": method, "options": {option: value}})
    assert flat == configure({"method": method, option: value, "options": {option: value}})
    assert getattr(strategy_of(flat).chosen(flat), option) == value


@every_flat_option
def test_a_flat_name_is_passed_over_by_a_method_without_that_option_and_its_value_is_still_checked(
    method: str, option: str
) -> None:
    value = another(fields_of(STRATEGIES[method].options)[option])
    for name, strategy in STRATEGIES.items():
        if option not in flat_names(strategy.options):
            assert configure({"method": name, option: value}) == configure({"method": name})
        with pytest.raises(FairTestError, match=rf"fairtest_args\.{option}=.* is not allowed"):
            configure({"method": name, option: {"not": "a value"}})


@every_flat_option
def test_a_flat_name_that_contradicts_the_option_is_refused(method: str, option: str) -> None:
    field = fields_of(STRATEGIES[method].options)[option]
    with pytest.raises(FairTestError, match=rf"fairtest_args\.{option}=.*options\.{option}=.*contradict each other"):
        configure({"method": method, option: another(field), "options": {option: field.default}})


def test_an_option_that_is_not_flat_has_nothing_to_do_with_a_flat_one_of_another_method() -> None:
    for method, option in (("mastest", "batch"), ("starla", "generations"), ("starla", "tournament")):
        given = configure({"method": method, option: 3, "options": {option: 5}})
        assert given.options[option] == 5
        assert configure({"method": method, option: 3}) == configure({"method": method})


def test_an_option_wins_over_the_preset() -> None:
    assert configure({"preset": "paper"}).options["pool"] == 7500
    assert configure({"preset": "paper", "options": {"pool": 30}}).options["pool"] == 30
    assert configure({"preset": "paper", "pool": 30}).options["pool"] == 30


@pytest.mark.parametrize(
    ("wrong", "meant"), [("poool", "pool"), ("f3_temprature", "f3_temperature"), ("budgett", "budget")]
)
def test_an_unknown_name_suggests_the_nearest_setting_or_flat_option(wrong: str, meant: str) -> None:
    with pytest.raises(FairTestError, match=rf"fairtest_args\.{wrong} is not a setting\. Did you mean {meant}\?"):
        configure({wrong: 3})


def test_a_name_like_no_other_lists_settings_and_flat_options() -> None:
    with pytest.raises(FairTestError, match="Known are: ") as caught:
        configure({"zzzzz": 1})
    assert {*FIELDS, *(option for _, option in FLAT)} <= set(str(caught.value).rstrip(".").replace(",", "").split())


@every_method
def test_the_settings_hold_every_option_and_come_back_from_a_file_as_they_were(method: str) -> None:
    for preset in presets():
        given = configure({"method": method, "preset": preset, "budget": 900})
        assert set(given.options) == set(fields_of(STRATEGIES[method].options))
        assert configure(given.as_dict()) == given
        assert configure(json.loads(json.dumps(given.as_dict()))) == given
        written = json.loads(json.dumps(asdict(strategy_of(given).chosen(given))))
        assert written == given.options


def test_a_strategy_of_another_package_may_have_flat_options(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Options:
        depth: int = setting(whole(1), "how deep", 3, flat=True)
        batch: int = setting(whole(1), "how many", 8)

    mine = Strategy("mine", "Mine", no_search, Options)
    monkeypatch.setattr(STRATEGIES, "_entries", {**STRATEGIES, "mine": mine})
    assert configure({"method": "mine", "depth": 5, "batch": 100}).options == {"depth": 5, "batch": 8}
    assert configure({"depth": 5}) == configure({})
    with pytest.raises(FairTestError, match=r"fairtest_args\.depth=0 is not allowed: how deep"):
        configure({"depth": 0})


# --- actions that an agent does not have --------------------------------------------------------------


def test_the_search_scores_candidates_without_the_actions_that_an_agent_does_not_have(tmp_path: Path) -> None:
    available = np.ones((3, 5), bool)
    available[0, 1:] = False
    available[1, 2] = False
    result = search(replace(team(), available=available), chosen(), tmp_path / "run")
    executed = Episodes.concatenate([episodes for _, episodes in result.folder.batches])
    taken = executed.actions[executed.running]
    assert available[np.arange(3), taken].all()
    (labelled,), candidates = result.folder.executed("predictor"), result.folder.executed("candidate")[0]
    with np.load(tmp_path / "run" / "evidence.npz") as file:
        f3 = file["round_0_candidates_scores"][:, 1]
    traces = Traces(candidates.q[candidates.running], np.nonzero(candidates.running)[0], np.zeros((len(candidates), 3)))
    for there, same in ((available, True), (np.ones_like(available), False)):
        temperature = scaled_temperature(labelled.q[labelled.running], there)
        assert (decision_certainty(traces, there, "q", temperature).tolist() == f3.tolist()) == same
