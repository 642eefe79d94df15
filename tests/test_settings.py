"""Settings: every name has a value, a rule and a meaning; wrong ones are refused with what is allowed."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import yaml

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.settings import (
    FIELDS,
    Settings,
    nearest,
    parse_assignment,
    parse_assignments,
    presets,
    settings,
)

CONFIG = shipped("config")


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((CONFIG / name).read_text())


def refused(**given: Any) -> str:
    with pytest.raises(FairTestError) as caught:
        settings(given)
    return str(caught.value)


# --- schema and values agree --------------------------------------------------------------------------


def test_every_setting_has_a_value_in_the_yaml_and_every_value_a_setting() -> None:
    assert list(read("fairtest.yaml")).sort() == list(FIELDS).sort()
    assert set(read("fairtest.yaml")) == set(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_has_a_meaning_and_a_rule_that_its_default_keeps(name: str) -> None:
    field = FIELDS[name]
    assert len(field.metadata["doc"]) > 10
    assert field.metadata["rule"].allowed
    assert field.metadata["rule"].holds(read("fairtest.yaml")[name])
    assert not field.metadata["rule"].holds(object())


def test_the_defaults_are_those_of_the_yaml_and_its_preset() -> None:
    chosen = settings({}).as_dict()
    expected = {**read("fairtest.yaml"), **read(f"presets/{chosen['preset']}.yaml")}
    assert chosen == expected


def test_the_named_presets_are_there() -> None:
    assert {"quick", "paper", "strict"} <= set(presets())


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads_and_changes_only_settings(name: str) -> None:
    chosen = settings({"preset": name})
    assert chosen.preset == name
    values = read(f"presets/{name}.yaml")
    assert values
    assert {key: getattr(chosen, key) for key in values} == values
    assert "preset" not in values


def test_the_papers_preset_has_the_papers_numbers() -> None:
    paper, strict = settings({"preset": "paper"}), settings({"preset": "strict"})
    assert (paper.budget, paper.accounting) == (18000, "paper")
    assert (strict.budget, strict.accounting) == (18000, "strict")
    assert (paper.execution, paper.epsilon) == ("epsilon_greedy", 0.05)


@pytest.mark.parametrize("name", ["fairtest_mpe", "fairtest_pp", "fairtest_lbf"])
def test_the_environments_settings_are_complete(name: str) -> None:
    values = read(f"envs/{name}.yaml")
    assert values["env"] == "gymma"
    assert {"key", "time_limit", "pretrained_wrapper"} <= set(values["env_args"])


# --- who wins -----------------------------------------------------------------------------------------


def test_the_user_wins_over_the_preset_and_the_preset_over_the_defaults() -> None:
    assert settings({"preset": "paper"}).budget == 18000
    assert settings({"preset": "paper", "budget": 7}).budget == 7
    assert settings({"preset": "paper", "budget": 7}).accounting == "paper"
    assert settings({}, budget=5).budget == read("presets/quick.yaml").get("budget", 5)
    assert settings({}, epsilon=0.5).epsilon == 0.5
    assert settings({"epsilon": 0.1}, epsilon=0.5).epsilon == 0.1


def test_settings_do_not_change_once_made() -> None:
    chosen = settings({})
    with pytest.raises(FrozenInstanceError):
        chosen.budget = 3  # type: ignore[misc]


# --- wrong names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("buget", "budget"),
        ("tetha", "theta"),
        ("methd", "method"),
        ("epsilom", "epsilon"),
        ("trainingpool", "training_pool"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(wrong: str, meant: str) -> None:
    message = refused(**{wrong: 1})
    assert f"fairtest_args.{wrong} is not a setting" in message
    assert f"Did you mean {meant}?" in message


def test_a_name_like_nothing_is_refused_with_all_there_are() -> None:
    message = refused(qqq=1)
    assert all(name in message for name in FIELDS)


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(FairTestError, match=r"fairtest_args\.5 is not a setting"):
        settings({5: 1})  # type: ignore[dict-item]


@pytest.mark.parametrize("given", [5, "budget=3", [1], True])
def test_something_that_is_no_set_of_settings_is_refused(given: Any) -> None:
    with pytest.raises(FairTestError, match=r"fairtest_args\.NAME=VALUE"):
        settings(given)


def test_an_unknown_preset_is_refused_with_the_nearest_one() -> None:
    message = refused(preset="quik")
    assert "fairtest_args.preset='quik' is not a preset" in message
    assert "Did you mean quick?" in message
    assert "is not a preset" in refused(preset=3)
    assert "is not a preset" in refused(preset=["quick"])


def test_nearest_names_one_or_lists_all() -> None:
    assert nearest("budgt", ["budget", "theta"]) == " Did you mean budget?"
    assert nearest("zzz", ["budget", "theta"]) == " Known are: budget, theta."


# --- wrong values -------------------------------------------------------------------------------------

NAN, INFINITE = float("nan"), float("inf")
WRONG: dict[str, list[Any]] = {
    "theta": [0, -0.1, 1.0001, 1.5, NAN, INFINITE, "0.8", True, [0.8]],
    "budget": [0, -5, 1.5, "100", True, None, NAN],
    "accounting": ["loose", None, 1],
    "execution": ["random", None],
    "epsilon": [-0.1, 1.1, NAN, "0.1", None, True],
    "temperature": [0, -1, NAN, INFINITE, None],
    "batch": [0, -1, 2.0, None],
    "seed": [-1, 1.5, "1", True],
    "training_pool": [-1, 1.5, None],
    "coverage_bins": [0, 65, 4.0],
    "distinct_distance": [-1, NAN, "near"],
    "progress": [1, 0, "perhaps", None],
    "out": ["", 3],
    "method": ["", None, 3],
    "allocation": ["", None],
    "engine": ["fast", None],
    "confirm": [-1, 1.5, "some", None, True, NAN],
    "options": [None, 3, "cycle=5", ["cycle"]],
}
RIGHT: dict[str, list[Any]] = {
    "theta": [None, 1, 1.0, 1e-9, 0.8],
    "budget": [1, 10**9],
    "epsilon": [0, 1, 0.05],
    "temperature": [1e-3, 1],
    "seed": [None, 0, 2**40],
    "training_pool": [0, 1],
    "coverage_bins": [1, 64],
    "distinct_distance": [None, 0, 0.5],
    "progress": [True, False],
    "out": [None, "run"],
    "confirm": [0, 1000, "all"],
    "options": [{}, {"cycle": 5}],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in WRONG.items() for v in values])
def test_a_wrong_value_is_refused_with_what_is_allowed(name: str, value: Any) -> None:
    message = refused(**{name: value})
    assert f"fairtest_args.{name}={value!r} is not allowed" in message
    assert FIELDS[name].metadata["rule"].allowed in message


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in RIGHT.items() for v in values])
def test_a_right_value_is_taken(name: str, value: Any) -> None:
    assert getattr(settings({name: value}), name) == value


def test_every_value_is_checked_not_just_the_given_ones() -> None:
    with pytest.raises(FairTestError, match=r"fairtest_args\.epsilon=2"):
        settings({}, epsilon=2)


# --- the command line ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("theta=0.8", ("theta", 0.8)),
        ("budget=5", ("budget", 5)),
        ("out=null", ("out", None)),
        ("progress=false", ("progress", False)),
        ("allocation=package.module:f", ("allocation", "package.module:f")),
        ("out=a=b", ("out", "a=b")),
        ("out=", ("out", None)),
    ],
)
def test_an_assignment_is_a_name_and_a_yaml_value(text: str, expected: tuple[str, Any]) -> None:
    assert parse_assignment(text) == expected


@pytest.mark.parametrize(
    "text", ["theta", "=3", "", "theta=[", "theta={a: b: c}", "x=!!python/object/apply:os.getcwd []"]
)
def test_what_is_no_assignment_is_refused(text: str) -> None:
    with pytest.raises(FairTestError, match="--set"):
        parse_assignment(text)


def test_settings_survive_the_way_to_the_manifest_and_back() -> None:
    chosen = settings({"preset": "paper", "budget": 12, "theta": 0.5})
    again = settings(yaml.safe_load(yaml.safe_dump(chosen.as_dict())))
    assert again == chosen
    assert isinstance(again, Settings)


# --- a method's own options ---------------------------------------------------------------------------


def test_options_are_given_with_a_dot() -> None:
    given = parse_assignments(["budget=5", "options.cycle=25", "options.warmup=100"])
    assert given == {"budget": 5, "options": {"cycle": 25, "warmup": 100}}


@pytest.mark.parametrize(
    ("method", "options", "told"),
    [
        ("gmt", {"cycles": 5}, "Did you mean cycle?"),
        ("gmt", {"cycle": 0}, "fairtest_args.options.cycle=0 is not allowed"),
        ("random", {"cycle": 5}, "is not an option of method 'random'. It has none."),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(method: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(FairTestError) as caught:
        check(settings({"method": method, "options": options}))
    assert told in str(caught.value)


# --- threads ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "load", "threads"), [(2, 0.2, 2), (2, 0.9, 1), (2, 9.0, 1), (1, 0.0, 1), (64, 3.0, 2)]
)
def test_two_threads_are_used_where_two_cores_are_free(
    cores: int, load: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)))
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    assert settings({}).threads == threads
    assert settings({"workers": 3}).threads == 3


@pytest.mark.parametrize("number", [10**300, -(10**300), 2**63])
def test_a_number_that_nothing_can_be_computed_with_is_refused(number: int) -> None:
    with pytest.raises(
        FairTestError, match=f"fairtest_args.rounds .* below 2.63; this number has {number.bit_length()}"
    ):
        settings({"rounds": number})
    assert settings({"seed": 2**63 - 1}).seed == 2**63 - 1
