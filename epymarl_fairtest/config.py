"""Settings: the schema with its rules here, the values in config/fairtest.yaml and config/presets.

A setting is wrong before training starts or never: `settings()` checks every value and every name.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from epymarl_fairtest.errors import FairTestError
from epymarl_fairtest.fairness import INDICES
from epymarl_fairtest.files import shipped
from epymarl_fairtest.ledger import ACCOUNTINGS

Options = TypeVar("Options")
LARGEST = 2**63  # of whole numbers: what is computed with them fits a float


@dataclass(frozen=True)
class Rule:
    """What a value may be: a test and the sentence that the error shows."""

    allowed: str
    holds: Callable[[Any], bool]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def between(low: float, high: float, *, open_low: bool = False, optional: bool = False) -> Rule:
    sentence = f"a number in {'(' if open_low else '['}{low:g}, {high:g}]" + (" or null" if optional else "")
    return Rule(
        sentence,
        lambda v: (optional and v is None) or (_number(v) and (low < v if open_low else low <= v) and v <= high),
    )


def whole(low: int, *, optional: bool = False) -> Rule:
    sentence = f"a whole number of at least {low}" + (" or null" if optional else "")
    return Rule(sentence, lambda v: (optional and v is None) or (_whole(v) and v >= low))


def one_of(*choices: str) -> Rule:
    return Rule("one of " + ", ".join(choices), lambda v: isinstance(v, str) and v in choices)


def _objectives(value: Any) -> tuple[str, ...] | None:
    """[f1, f3], "f1,f3", "[f1,f3]" (as sacred hands it over) or f0; None if it is anything else."""
    if isinstance(value, str):
        value = value.strip("[]() ").replace(" ", "").split(",")
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        return None
    names = tuple(name for name in value if name not in ("", "f0"))
    return names if set(names) <= {"f1", "f2", "f3"} and len(set(names)) == len(names) else None


TEXT = Rule("text", lambda v: isinstance(v, str) and bool(v))
OPTIONAL_TEXT = Rule("text or null", lambda v: v is None or (isinstance(v, str) and bool(v)))
YES_NO = Rule("true or false", lambda v: isinstance(v, bool))


def setting(rule: Rule, doc: str, default: Any = MISSING) -> Any:
    """A field of a schema. The defaults of `Settings` stand in config/, those of a method's options beside it."""
    return field(default=default, metadata={"rule": rule, "doc": doc})


@dataclass(frozen=True)
class Settings:
    """Every setting of a FairTest run."""

    preset: str = setting(TEXT, "named set of values: quick (a minute), paper, strict")
    method: str = setting(TEXT, "the strategy that chooses the tests")
    options: Mapping[str, Any] = setting(
        Rule("a set of the method's own settings, e.g. options.cycle=25", lambda v: isinstance(v, Mapping)),
        "settings that only this method has (docs/baselines.md)",
    )
    allocation: str = setting(
        TEXT,
        "per-agent reward that fairness is judged on: env (what the environment pays), nearest_landmark"
        " (spread), prey_distance (tag), or package.module:function",
    )
    index: str = setting(
        one_of(*INDICES), "fairness index of what the agents received: Jain's, 1 - Gini, min/max, 1 - variation"
    )
    theta: float | str | None = setting(
        Rule(
            "a number in (0, 1], auto, or null (the task's own, for jfi only)",
            lambda v: v is None or v == "auto" or (_number(v) and 0 < v <= 1),
        ),
        "failure threshold: an episode is unfair if its index does not exceed it; auto takes it from random executions",
    )
    quantile: float = setting(
        Rule("a number in (0, 1)", lambda v: _number(v) and 0 < v < 1),
        "share of the random executions that theta=auto calls unfair",
    )
    calibration_episodes: int | None = setting(
        whole(20, optional=True), "random executions that theta=auto looks at; null: 1,000, or a fifth of the budget"
    )
    budget: int = setting(whole(1), "episodes the method may spend, in the unit of `accounting`")
    accounting: str = setting(
        one_of(*ACCOUNTINGS), "what counts against the budget: strict (everything executed) or paper"
    )
    execution: str = setting(
        one_of("epsilon_greedy", "softmax", "greedy"), "how the trained team picks its actions when tested"
    )
    epsilon: float = setting(between(0, 1), "probability of a random action per agent and step (epsilon_greedy)")
    temperature: float = setting(
        between(0, 1e6, open_low=True), "softmax temperature, in units of the Q range of that agent at that step"
    )
    rounds: int = setting(
        whole(1),
        "rounds of the search, each with a pool of its own (R); more where that pool would exceed 7,500",
    )
    generations: int = setting(whole(0), "generations per round (G)")
    pool: int | None = setting(whole(2, optional=True), "candidates per round; null: from the budget")
    select_ratio: float = setting(
        between(0, 1, open_low=True), "share of the candidate pool that the prioritisation keeps (K = ratio * pool)"
    )
    offspring: int | None = setting(
        whole(1, optional=True), "mutants executed per generation, whatever the ratio; null: from the budget"
    )
    crossover_ratio: float = setting(between(0, 10), "crossover children per generation, in units of `offspring`")
    predictor_episodes: int | None = setting(
        whole(0, optional=True), "random executions that train the predictor beside the training pool; null: pool / 3"
    )
    prioritise: bool = setting(YES_NO, "ParetoSelect on f2 and f3 (Algorithm 3); off keeps the first ones instead")
    fill: str = setting(
        one_of("crowding", "fronts"), "what fills the population behind the first front: Algorithm 3, or further fronts"
    )
    fitness: list[str] | str = setting(
        Rule("any of f1, f2, f3, e.g. [f1, f3]; f0 for none", lambda v: _objectives(v) is not None),
        "fitness functions that guide the search",
    )
    f3_temperature: float | str = setting(
        Rule("a number above 0, or scaled", lambda v: v == "scaled" or (_number(v) and v > 0)),
        "softmax temperature of f3; scaled is the median Q range, the paper's is 1",
    )
    parents: str = setting(one_of("tournament", "uniform"), "how parents are drawn from the population")
    tournament: int = setting(whole(1), "episodes per tournament")
    buckets: int = setting(whole(2), "one-hot buckets per fairness feature (B)")
    d: float | None = setting(
        between(0, 1e12, open_low=True, optional=True), "abstraction level; null: by out-of-bag AUC"
    )
    workers: int | None = setting(
        whole(1, optional=True),
        "threads of the twin engine and of the predictor's forest; null: two where two cores are free. Results do not"
        " depend on it",
    )
    engine: str = setting(
        one_of("auto", "twin", "lockstep"),
        "what executes episodes: the real environments (lockstep), their compiled twins, or the twins if they prove"
        " equal (auto)",
    )
    confirm: int | str = setting(
        Rule("all, or a whole number of at least 0", lambda v: v == "all" or (_whole(v) and v >= 0)),
        "failures that are replayed through the real environment after the search: all of them, or this many, drawn"
        " at random",
    )
    batch: int = setting(whole(1), "tests per batch of the random strategy")
    seed: int | None = setting(whole(0, optional=True), "root seed of the search; null: the host's, or 0")
    training_pool: int = setting(whole(0), "training episodes kept, later ones more likely; 0 switches the hook off")
    coverage_bins: int = setting(
        Rule("a whole number from 1 to 64", lambda v: _whole(v) and 1 <= v <= 64),
        "bins per position coordinate of the coverage grid",
    )
    distinct_distance: float | None = setting(
        between(0, 1e9, optional=True),
        "two failures of one root are distinct if their agents are further apart than this on average",
    )
    report: bool = setting(YES_NO, "draw the run's page, report/index.html")
    progress: bool = setting(YES_NO, "show a progress bar (only ever on a terminal)")
    out: str | None = setting(OPTIONAL_TEXT, "run folder; it must not exist yet")

    @property
    def calibration(self) -> int:
        """Random executions that calibrate theta; 0 where it is given."""
        if self.theta != "auto":
            return 0
        return self.calibration_episodes or max(20, min(1000, self.budget // 5))

    @property
    def threads(self) -> int:
        return self.workers or free_cores()

    @property
    def objectives(self) -> tuple[str, ...]:
        return _objectives(self.fitness) or ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def free_cores(most: int = 2) -> int:
    """How many of this process's cores nobody uses, by the load of the last minute; at least one, at most `most`."""
    try:
        idle = len(os.sched_getaffinity(0)) - os.getloadavg()[0]
    except (AttributeError, OSError):  # not on every system
        return 1
    return max(1, min(most, round(idle)))


FIELDS = {f.name: f for f in fields(Settings)}


def presets() -> list[str]:
    return sorted(p.stem for p in (shipped("config") / "presets").glob("*.yaml"))


def settings(given: Mapping[str, Any], **defaults: Any) -> Settings:
    """The settings of a run: FairTest's defaults, `defaults`, the preset, then what the user gave."""
    if not isinstance(given, Mapping):
        raise FairTestError(
            f"fairtest_args={given!r} is no set of settings; write fairtest_args.NAME=VALUE, for example"
            " fairtest_args.budget=500."
        )
    for name in given:
        if name not in FIELDS:
            raise FairTestError(f"fairtest_args.{name} is not a setting.{nearest(str(name), FIELDS)}")
    values = {**_read(shipped("config") / "fairtest.yaml"), **defaults}
    preset = given.get("preset", values["preset"])
    if preset not in presets():
        raise FairTestError(
            f"fairtest_args.preset={preset!r} is not a preset; allowed: {', '.join(presets())}."
            + meant(str(preset), presets())
        )
    values = {**values, **_read(shipped("config") / "presets" / f"{preset}.yaml"), **given, "preset": preset}
    values = {name: _checked("fairtest_args", FIELDS[name], value) for name, value in values.items()}
    if values["index"] != "jfi" and values["theta"] is None:
        raise FairTestError(
            f"fairtest_args.index={values['index']!r} needs a threshold of its own: set theta to a number in (0, 1],"
            " or to auto. The tasks' thresholds are for jfi."
        )
    return Settings(**values)


def _checked(where: str, field: Field[Any], value: Any) -> Any:
    """The value, if the field's rule allows it."""
    rule: Rule = field.metadata["rule"]
    if rule is YES_NO and isinstance(value, str):
        value = {"on": True, "true": True, "off": False, "false": False}.get(value.lower(), value)
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise FairTestError(
            f"{where}.{field.name} is not allowed: {field.metadata['doc']}. It must be {rule.allowed}, and below 2^63;"
            f" this number has {value.bit_length()} bits."
        )
    if not rule.holds(value):
        raise FairTestError(
            f"{where}.{field.name}={value!r} is not allowed: {field.metadata['doc']}. It must be {rule.allowed}."
        )
    return value


@dataclass(frozen=True)
class NoOptions:
    """The options of a method that has none."""


def options_of(schema: type[Options], given: Mapping[str, Any], method: str) -> Options:
    """A method's own settings: its defaults and what the user gave, checked like all others."""
    known = {f.name: f for f in fields(schema)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            which = nearest(str(name), known) if known else " It has none."
            raise FairTestError(f"fairtest_args.options.{name} is not an option of method {method!r}.{which}")
    return schema(**{name: _checked("fairtest_args.options", known[name], value) for name, value in given.items()})


def nearest(name: str, known: Any) -> str:
    """The sentence that names what was probably meant, or lists everything there is."""
    return meant(name, known) or f" Known are: {', '.join(known)}."


def meant(name: str, known: Any) -> str:
    """The sentence that names what was probably meant; empty if nothing is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]}?" if close else ""


def parse_assignment(text: str) -> tuple[str, Any]:
    """`name=value` from the command line; the value is read as YAML."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise FairTestError(f"--set {text!r} is not NAME=VALUE; for example --set theta=0.8")
    try:
        parsed = yaml.safe_load(value)
        return name, float(parsed) if isinstance(parsed, str) and _is_float(parsed) else parsed
    except yaml.YAMLError as error:
        raise FairTestError(f"--set {text!r}: the value is not YAML ({error.__class__.__name__})") from error


def parse_assignments(texts: Sequence[str], named: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Several of them as settings; `options.NAME` goes into the method's options.

    `named` are settings with an option of their own, None where it was not given.
    """
    given: dict[str, Any] = {}
    for text in texts:
        name, value = parse_assignment(text)
        group, dot, option = name.partition(".")
        if group == "options" and dot:
            options = given.setdefault("options", {})
            if not isinstance(options, dict):
                raise FairTestError(
                    f"--set {text!r} and --set options={options!r} contradict each other; leave one out."
                )
            options[option] = value
        else:
            given[name] = value
    for name, value in (named or {}).items():
        if value is not None and given.setdefault(name, value) != value:
            raise FairTestError(
                f"fairtest_args.{name}={value} and --set {name}={given[name]} contradict each other; leave one out."
            )
    return given


def _is_float(text: str) -> bool:
    """YAML takes 1e-3 for text."""
    try:
        float(text)
    except ValueError:
        return False
    return text[:1].isdigit()


def _read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text()) or {}
