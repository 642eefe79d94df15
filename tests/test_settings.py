"""Settings: every name has a value, a rule and a meaning; wrong ones are refused with what is allowed."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import yaml

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.registry import nearest
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.settings import (
    FIELDS,
    NoOptions,
    Settings,
    fields_of,
    flat_names,
    options_of,
    parse_assignment,
    parse_assignments,
    presets,
)
from epymarl_fairtest.strategies import STRATEGIES, configure, strategy_of

CONFIG = shipped("config")


FLAT = {name for strategy in STRATEGIES.values() for name in flat_names(strategy.options)}


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((CONFIG / name).read_text())


def refused(**given: Any) -> str:
    with pytest.raises(FairTestError) as caught:
        configure(given)
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


@pytest.mark.usefixtures("as_shipped")
def test_the_defaults_are_those_of_the_yaml_and_its_preset() -> None:
    chosen = configure({}).as_dict()
    expected = {**read("fairtest.yaml"), **read(f"presets/{chosen['preset']}.yaml")}
    search = STRATEGIES[expected["method"]].options
    expected["options"] = {name: given(expected.pop(name, field.default)) for name, field in fields_of(search).items()}
    assert chosen == expected


def given(value: Any) -> Any:
    """As YAML would have given it."""
    return list(value) if isinstance(value, tuple) else value


def value_of(settings: Settings, name: str) -> Any:
    """A setting, or an option of the method that may be given like one."""
    return getattr(settings, name) if name in FIELDS else settings.options[name]


def test_the_defaults_of_the_search_are_those_they_always_were() -> None:
    """The paper's, and in the default preset candidates that scout chooses and mutants that are screened."""
    the_papers = {
        "rounds": 3, "generations": 3, "pool": None, "select_ratio": 0.2, "offspring": None, "crossover_ratio": 0.5,
        "predictor_episodes": None, "prioritise": True, "fill": "crowding", "fitness": ["f1", "f2", "f3"],
        "f3_temperature": "scaled", "parents": "tournament", "tournament": 2, "buckets": 10, "d": None,
        "candidates": "random", "genetic_share": 0.1, "screen": 1,
    }  # fmt: skip
    assert configure({}).options == {**the_papers, "candidates": "scout", "screen": 6}
    assert configure({"preset": "strict"}).options == the_papers
    sizes = {"pool": 7500, "offspring": 1500, "predictor_episodes": 2500, "f3_temperature": 1.0}
    assert configure({"preset": "paper"}).options == {**the_papers, **sizes}
    assert configure({"method": "random"}).options == {"batch": 256}


def test_the_named_presets_are_there() -> None:
    assert {"quick", "paper", "strict"} <= set(presets())


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads_and_changes_only_settings(name: str) -> None:
    chosen = configure({"preset": name})
    assert chosen.preset == name
    values = read(f"presets/{name}.yaml")
    assert values
    assert {key: value_of(chosen, key) for key in values} == values
    assert "preset" not in values


def test_the_default_preset_is_quick() -> None:
    assert configure({}) == configure({"preset": "quick"})
    assert read("presets/quick.yaml") == {"budget": 1000, "candidates": "scout", "screen": 6}


def test_the_papers_preset_has_the_papers_numbers() -> None:
    paper, strict = configure({"preset": "paper"}), configure({"preset": "strict"})
    assert (paper.budget, paper.accounting) == (18000, "paper")
    assert (strict.budget, strict.accounting) == (18000, "strict")
    assert (paper.played_by("q").execution, paper.epsilon) == ("epsilon_greedy", 0.05)


@pytest.mark.parametrize("name", ["fairtest_mpe", "fairtest_pp", "fairtest_lbf"])
def test_the_environments_settings_are_complete(name: str) -> None:
    values = read(f"envs/{name}.yaml")
    assert values["env"] == "gymma"
    assert {"key", "time_limit", "pretrained_wrapper"} <= set(values["env_args"])


# --- who wins -----------------------------------------------------------------------------------------


def test_the_user_wins_over_the_preset_and_the_preset_over_the_defaults() -> None:
    assert configure({"preset": "paper"}).budget == 18000
    assert configure({"preset": "paper", "budget": 7}).budget == 7
    assert configure({"preset": "paper", "budget": 7}).accounting == "paper"
    assert configure({}, budget=5).budget == read("presets/quick.yaml").get("budget", 5)
    assert configure({}, epsilon=0.5).epsilon == 0.5
    assert configure({"epsilon": 0.1}, epsilon=0.5).epsilon == 0.1


def test_settings_do_not_change_once_made() -> None:
    chosen = configure({})
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
    assert all(name in message for name in FLAT)


def test_a_name_that_is_not_text_is_refused() -> None:
    with pytest.raises(FairTestError, match=r"fairtest_args\.5 is not a setting"):
        configure({5: 1})  # type: ignore[dict-item]


@pytest.mark.parametrize("given", [5, "budget=3", [1], True])
def test_what_is_not_a_set_of_settings_is_refused(given: Any) -> None:
    with pytest.raises(FairTestError, match=r"fairtest_args\.NAME=VALUE"):
        configure(given)


def test_an_unknown_preset_is_refused_with_the_nearest_one() -> None:
    message = refused(preset="quik")
    assert "fairtest_args.preset='quik' is not a preset" in message
    assert "Did you mean quick?" in message
    assert "is not a preset" in refused(preset=3)
    assert "is not a preset" in refused(preset=["quick"])


def test_nearest_names_one_or_lists_all() -> None:
    assert nearest("budgt", ["budget", "theta"]) == " Did you mean budget? Known are: budget, theta."
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
    "seed": [-1, 1.5, "1", True],
    "training_pool": [-1, 1.5, None],
    "coverage_bins": [0, 65, 4.0],
    "distinct_distance": [-1, NAN, "near"],
    "progress": [1, 0, "perhaps", None],
    "out": ["", 3],
    "method": ["", None, 3],
    "allocation": ["", None],
    "engine": ["fast", None],
    "replay": [-1, 1.5, "some", True, NAN],
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
    "replay": [0, 1000, "all", None],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in WRONG.items() for v in values])
def test_a_wrong_value_is_refused_with_what_is_allowed(name: str, value: Any) -> None:
    message = refused(**{name: value})
    assert f"fairtest_args.{name}={value!r} is not allowed" in message
    assert FIELDS[name].metadata["rule"].allowed in message


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in RIGHT.items() for v in values])
def test_a_right_value_is_taken(name: str, value: Any) -> None:
    assert getattr(configure({name: value}), name) == value


def test_the_old_name_of_a_setting_still_works() -> None:
    assert configure({"confirm": 7}) == configure({"replay": 7})
    assert configure({"confirm": 7}).replay == 7
    assert "fairtest_args.replay=-1 is not allowed" in refused(confirm=-1)
    assert configure({"confirm": 7, "replay": 7}).replay == 7
    assert "confirm=7 and fairtest_args.replay=8 contradict each other" in refused(confirm=7, replay=8)


def test_every_value_is_checked_not_just_the_given_ones() -> None:
    with pytest.raises(FairTestError, match=r"fairtest_args\.epsilon=2"):
        configure({}, epsilon=2)


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
def test_what_is_not_an_assignment_is_refused(text: str) -> None:
    with pytest.raises(FairTestError, match="--set"):
        parse_assignment(text)


def test_settings_survive_the_way_to_the_manifest_and_back() -> None:
    for method in STRATEGIES:
        chosen = configure({"preset": "paper", "method": method, "budget": 12, "theta": 0.5})
        again = configure(yaml.safe_load(yaml.safe_dump(chosen.as_dict())))
        assert again == chosen
        assert configure(json.loads(json.dumps(chosen.as_dict()))) == chosen
        assert isinstance(again, Settings)


# --- a method's own options ---------------------------------------------------------------------------


def test_options_are_given_with_a_dot() -> None:
    given = parse_assignments(["budget=5", "options.cycle=25", "options.warmup=100"])
    assert given == {"budget": 5, "options": {"cycle": 25, "warmup": 100}}


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("gmt", {"cycles": 5}, "Did you mean cycle?"),
        ("gmt", {"cycle": 0}, "fairtest_args.options.cycle=0 is not allowed"),
        ("random", {"cycle": 5}, "is not an option of method 'random'. Known are: batch."),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(method: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(FairTestError) as caught:
        configure({"method": method, "options": options})
    assert message in str(caught.value)


def test_a_method_without_options_says_so() -> None:
    with pytest.raises(FairTestError, match=r"options\.cycle is not an option of method 'plain'\. It has none"):
        options_of(NoOptions, {"cycle": 5}, "plain")
    assert options_of(NoOptions, {}, "plain") == NoOptions()


def test_options_are_taken_and_the_others_keep_their_defaults() -> None:
    chosen = configure({"method": "gmt", "options": {"cycle": 5}})
    assert chosen.options["cycle"] == 5
    assert chosen.options == {**configure({"method": "gmt"}).options, "cycle": 5}
    assert strategy_of(chosen).chosen(chosen).cycle == 5
    assert configure({"options": {}}) == configure({})


def test_an_unknown_method_is_refused_with_those_there_are() -> None:
    message = refused(method="gtm")
    assert "fairtest_args.method='gtm' is not a method; known are: " in message
    assert all(name in message for name in STRATEGIES)
    assert "Did you mean gmt?" in message


# --- options that may be given like settings ----------------------------------------------------------

WRONG_OPTIONS: list[tuple[str, str, Any]] = [
    ("random", "batch", 0), ("random", "batch", -1), ("random", "batch", 2.0), ("random", "batch", None),
    ("fairtest", "pool", 1), ("fairtest", "rounds", 0), ("fairtest", "rounds", True), ("fairtest", "select_ratio", 0),
    ("fairtest", "fitness", "f4"), ("fairtest", "fitness", ["f1", "f1"]), ("fairtest", "fill", "front"),
    ("fairtest", "f3_temperature", 0), ("fairtest", "prioritise", "perhaps"), ("fairtest", "d", 0),
]  # fmt: skip


@pytest.mark.parametrize(("method", "name", "value"), WRONG_OPTIONS)
def test_a_wrong_flat_option_is_refused_whichever_method_is_chosen(method: str, name: str, value: Any) -> None:
    allowed = fields_of(STRATEGIES[method].options)[name].metadata["rule"].allowed
    for chosen in STRATEGIES:
        message = refused(method=chosen, **{name: value})
        assert f"fairtest_args.{name}={value!r} is not allowed" in message
        assert allowed in message


def test_a_flat_option_is_the_same_with_and_without_options_in_front_of_it() -> None:
    assert configure({"pool": 700}).options["pool"] == 700
    assert configure({"pool": 700}) == configure({"options": {"pool": 700}})
    assert configure({"pool": 700, "options": {"pool": 700}}) == configure({"pool": 700})
    message = refused(pool=700, options={"pool": 800})
    assert "fairtest_args.pool=700 and fairtest_args.options.pool=800 contradict each other" in message


def test_a_flat_option_wins_over_the_preset_and_the_preset_over_its_default() -> None:
    assert configure({"preset": "paper"}).options["pool"] == 7500
    assert configure({"preset": "paper", "pool": 70}).options["pool"] == 70
    assert configure({"preset": "paper", "options": {"pool": 70}}).options["pool"] == 70
    assert configure({"preset": "paper", "method": "starla"}).options["f3_temperature"] == 1.0


def test_one_set_of_values_serves_all_methods() -> None:
    """What a method has no use for is passed over; so a study may give all of them the same."""
    shared = {"pool": 700, "rounds": 2, "batch": 64, "tournament": 4, "d": 0.5}
    assert configure({"method": "random", **shared}).options == {"batch": 64}
    assert configure({"method": "starla", **shared}).options["d"] == 0.5
    assert configure({"method": "fairtest", **shared}).options["tournament"] == 4


@pytest.mark.parametrize(
    ("method", "options", "beside"),
    [("starla", {"tournament": 10}, {"tournament": 2}), ("mastest", {"batch": 5}, {"batch": 256})],
)
def test_another_methods_flat_option_of_the_same_name_is_another_setting(
    method: str, options: dict[str, Any], beside: dict[str, Any]
) -> None:
    """As the manifests of runs have them that were made before the search's settings were options."""
    chosen = configure({"method": method, "options": options, **beside})
    assert chosen == configure({"method": method, "options": options})
    assert chosen.options.items() >= options.items()


# --- threads ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "load", "threads"), [(2, 0.2, 2), (2, 0.9, 1), (2, 9.0, 1), (1, 0.0, 1), (64, 3.0, 2)]
)
def test_two_threads_are_used_where_two_cores_are_free(
    cores: int, load: float, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(cores)))
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    assert configure({}).threads == threads
    assert configure({"workers": 3}).threads == 3


@pytest.mark.parametrize("number", [10**300, -(10**300), 2**63])
def test_a_number_that_nothing_can_be_computed_with_is_refused(number: int) -> None:
    with pytest.raises(
        FairTestError, match=f"fairtest_args.rounds .* below 2.63; this number has {number.bit_length()}"
    ):
        configure({"rounds": number})
    assert configure({"seed": 2**63 - 1}).seed == 2**63 - 1
