"""Every setting of a run: names, rules and meaning. The values are in config/fairtest.yaml and config/presets.

A wrong setting is refused before training starts: every name and every value is checked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.ledger import ACCOUNTINGS
from epymarl_fairtest.core.registry import meant
from epymarl_fairtest.core.scores import execution_of
from epymarl_fairtest.core.shipped import presets, shipped
from epymarl_fairtest.settings.rules import (
    AT_ONCE,
    LARGEST,
    OPTIONAL_TEXT,
    TEXT,
    YES_NO,
    Registered,
    Rule,
    between,
    checked,
    fields_of,
    is_number,
    is_whole,
    one_of,
    setting,
    whole,
)

FEWEST_REPLAYS, MOST_REPLAYS = 100, 300  # replay=null, while all of them come out the same
REPLAYS_AFTER_ONE = 1000  # in all, where one does not


def _are_agents(values: Sequence[Any]) -> bool:
    return all(is_whole(value) and 1 <= value < LARGEST for value in values) and len(set(values)) == len(values)


@dataclass(frozen=True)
class Settings:
    """Every setting of a FairTest run."""

    preset: str = setting(TEXT, f"named set of values: {', '.join(presets())}")
    method: str = setting(TEXT, "the strategy that chooses the tests")
    options: Mapping[str, Any] = setting(
        Rule("a set of the method's own settings, e.g. options.cycle=25", lambda v: isinstance(v, Mapping)),
        "settings that only this method has (docs/settings.md)",
    )
    allocation: str = setting(
        TEXT,
        "per-agent reward that fairness is judged on: env (what the environment pays), another one that the task knows,"
        " or package.module:function",
    )
    agents: str | Sequence[int] = setting(
        Rule(
            "all, or a list of at least two different agents, counted from 1, e.g. [1, 2]",
            lambda v: v == "all" or (isinstance(v, list | tuple) and len(v) > 1 and _are_agents(v)),
        ),
        "the agents that form the team that is judged; name one side where the environment has opponents",
    )
    index: str = setting(Registered(INDICES), "fairness index of what the agents received")
    theta: float | str | None = setting(
        Rule(
            "a number in (0, 1], auto, or null (the task's own, for jfi only)",
            lambda v: v is None or v == "auto" or (is_number(v) and 0 < v <= 1),
        ),
        "failure threshold: an episode is unfair if its index does not exceed it; auto takes it from random executions",
    )
    quantile: float = setting(
        Rule("a number in (0, 1)", lambda v: is_number(v) and 0 < v < 1),
        "share of the random executions that theta=auto calls unfair",
    )
    calibration_episodes: int | None = setting(
        whole(20, AT_ONCE, optional=True),
        "random executions that theta=auto looks at; null: 1,000, or a fifth of the budget",
    )
    budget: int = setting(whole(1), "episodes the method may spend, in the unit of `accounting`")
    accounting: str = setting(
        one_of(*ACCOUNTINGS), "what counts against the budget: strict (everything executed) or paper"
    )
    execution: str = setting(
        one_of("auto", "epsilon_greedy", "softmax", "policy", "greedy"),
        "how the trained team picks its actions when tested; auto: epsilon_greedy where it gives Q-values, and where it"
        " gives probabilities (mappo, ippo, ...) policy: drawn from them",
    )
    epsilon: float = setting(between(0, 1), "probability of a random action per agent and step (epsilon_greedy)")
    temperature: float = setting(
        between(0, 1e6, open_low=True), "softmax temperature, in units of the Q range of that agent at that step"
    )
    workers: int | None = setting(
        whole(1, 1024, optional=True),
        "threads of the twin engine and of the predictor's forest, and if given processes of the lock-step engine;"
        " null: two threads where two cores are free. Results do not depend on it",
    )
    engine: str = setting(
        one_of("auto", "twin", "lockstep"),
        "what executes episodes: the real environments (lockstep), their compiled twins, or the twins if they prove"
        " equal (auto)",
    )
    random_team: int = setting(
        whole(0),
        "starts of random executions from which a team that acts at random is executed too, to compare with; 0: none",
    )
    replay: int | str | None = setting(
        Rule(
            "all, a whole number of at least 0, or null", lambda v: v is None or v == "all" or (is_whole(v) and v >= 0)
        ),
        "failures that are replayed through the real environment after the search: all of them, or this many, drawn"
        " at random; null: a tenth of the budget, at least 100 and at most 300, and up to 1,000 if one of them does not"
        " come out the same",
    )
    explain: int | str = setting(
        Rule("all, or a whole number of at least 0", lambda v: v == "all" or (is_whole(v) and v >= 0)),
        "different failures that are explained after the search (docs/explaining.md), the most unfair and"
        " representative ones first; all, or at most this many (where agents have a memory 20 or a tenth); 0: none."
        " Without a compiled twin a few",
    )
    natural_episodes: int | None = setting(
        whole(0, optional=True),
        "random executions of the team after the search, for the natural rate alone and charged to nobody; null: 200"
        " where the method makes no random ones, otherwise what is missing to 500 where a twin executes them",
    )
    seed: int | None = setting(whole(0, optional=True), "root seed of the search; null: the host's, or 0")
    training_pool: int = setting(whole(0), "training episodes kept, later ones more likely; 0 switches the hook off")
    welfare: str | None = setting(
        Rule(
            "gini, jain, min, or null (train on what the environment pays)",
            lambda v: v in (None, "gini", "jain", "min"),
        ),
        "fairness that training itself is paid for, from the first episode on (docs/repairing.md)",
    )
    welfare_weight: float | None = setting(
        between(0, 1000, open_low=True, optional=True), "weight of the welfare; null: 0.5, with jain 3"
    )
    curve_episodes: int | None = setting(
        whole(0, AT_ONCE, optional=True),
        "random executions of the team at every test of the host, for the fairness curve; null: 500 where the"
        " environment has a twin, else none",
    )
    curve_keep: str = setting(
        one_of("all", "best", "none"),
        "teams of the curve that are kept: all, those that no other beats in return and natural rate (at most 10), or"
        " none",
    )
    repair: bool | str = setting(
        Rule("true, false, or options of `fairtest repair` as text", lambda v: isinstance(v, bool | str)),
        "in a host, repair the team after its test (docs/repairing.md), into the folder RUN-repaired; text is options"
        " of `fairtest repair`",
    )
    coverage_bins: int = setting(
        whole(1, 64),
        "bins per position coordinate of the coverage grid",
    )
    distinct_distance: float | None = setting(
        between(0, 1e9, optional=True),
        "two failures are distinct if their agents are further apart than this on average, wherever they began",
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
    def replays(self) -> tuple[int, int]:
        """Failures that are replayed: how many at first, and how many in all where one of those is unstable."""
        if self.replay is None:
            return min(max(FEWEST_REPLAYS, self.budget // 10), MOST_REPLAYS), REPLAYS_AFTER_ONE
        wanted = LARGEST if self.replay == "all" else int(self.replay)
        return wanted, wanted

    @property
    def threads(self) -> int:
        return self.workers or free_cores()

    def played_by(self, reading: str) -> Settings:
        """These settings for a team whose scores are read so: with what `execution=auto` means for it."""
        return replace(self, execution=execution_of(self.execution, reading))

    def root_seed(self, otherwise: int = 0) -> int:
        """The seed of the search; `otherwise`, the host's, where none is given."""
        return otherwise if self.seed is None else self.seed

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def free_cores(most: int = 2) -> int:
    """How many of this process's cores are idle, by the load of the last minute; at least one, at most `most`."""
    try:
        idle = len(os.sched_getaffinity(0)) - os.getloadavg()[0]
    except (AttributeError, OSError):  # not on every system
        return 1
    return max(1, min(most, round(idle)))


FIELDS = fields_of(Settings)
RENAMED = {"confirm": "replay"}
"""Settings that had another name when a run was saved: the old name still works."""


def merged(given: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    """FairTest's defaults, `defaults`, the preset, then what the user gave; the names are not checked yet."""
    if not isinstance(given, Mapping):
        raise FairTestError(
            f"fairtest_args={given!r} is not a set of settings; write fairtest_args.NAME=VALUE, for example"
            " fairtest_args.budget=500."
        )
    given = _renamed(given)
    values = {**_read(shipped("config") / "fairtest.yaml"), **defaults}
    preset = given.get("preset", values["preset"])
    if preset not in presets():
        raise FairTestError(
            f"fairtest_args.preset={preset!r} is not a preset; allowed: {', '.join(presets())}."
            + meant(str(preset), presets())
        )
    return {**values, **_read(shipped("config") / "presets" / f"{preset}.yaml"), **given, "preset": preset}


def _renamed(given: Mapping[str, Any]) -> dict[str, Any]:
    """The given settings under the names of today."""
    values = {name: value for name, value in given.items() if name not in RENAMED}
    for old, new in RENAMED.items():
        if old in given and values.setdefault(new, given[old]) != given[old]:
            raise FairTestError(
                f"fairtest_args.{old}={given[old]} and fairtest_args.{new}={given[new]} contradict each other"
                f" ({old} is the old name of {new}); leave one out."
            )
    return values


def checked_settings(values: Mapping[str, Any]) -> Settings:
    """The settings with these values, each one checked."""
    allowed = {name: checked("fairtest_args", FIELDS[name], value) for name, value in values.items()}
    if allowed["index"] != "jfi" and allowed["theta"] is None:
        raise FairTestError(
            f"fairtest_args.index={allowed['index']!r} needs a threshold of its own: set theta to a number in (0, 1],"
            " or to auto. The tasks' thresholds are for jfi."
        )
    if allowed["agents"] != "all":
        allowed["agents"] = list(allowed["agents"])  # sacred's own kind of list
    return Settings(**allowed)


def _read(path: Path) -> dict[str, Any]:
    return deepcopy(_parsed(path))


@cache
def _parsed(path: Path) -> dict[str, Any]:
    """Once: the files are FairTest's own, and reading YAML takes longer than checking all settings."""
    return yaml.safe_load(path.read_text()) or {}
