"""What summary.json and manifest.json of a search may hold, name by name: whoever reads them may rely on it.

A file may be whole and sealed and still hold nonsense: anybody can write one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.settings import FIELDS, LARGEST, Rule, is_number, is_whole

Holds = Callable[[Any], bool]


def count(value: Any) -> bool:
    return is_whole(value) and 0 <= value < LARGEST


def real(value: Any) -> bool:
    return is_number(value) and abs(value) < LARGEST and math.isfinite(value)


def share(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def text(value: Any) -> bool:
    return isinstance(value, str)


def maybe(holds: Holds) -> Holds:
    return lambda value: value is None or holds(value)


def each(holds: Holds) -> Holds:
    return lambda value: isinstance(value, list) and all(map(holds, value))


def named(holds: Holds) -> Holds:
    """A set of any names, each with such a value."""
    return lambda value: isinstance(value, dict) and all(map(holds, value.values()))


def having(needed: Mapping[str, Holds], **also: Holds) -> Holds:
    """A set that has these names, and perhaps those of `also`."""

    def holds(value: Any) -> bool:
        if not isinstance(value, dict) or not needed.keys() <= value.keys():
            return False
        return all(rule(value[name]) for name, rule in {**needed, **also}.items() if name in value)

    return holds


SPENT = having({"episodes": count, "steps": count})
RANDOM_TEAM = having(
    {"starts": count, "received": each(real), "return": real, "team_received": each(real), "team_return": real,
     "better": count, "worse": count, "p": share, "beaten": lambda value: isinstance(value, bool)}
)  # fmt: skip
COMPETENCE = having(
    {"executions": count, "received": each(real), "return": real, "undefined": share, "opposite_signs": share,
     "least_return": maybe(real), "random_team": maybe(RANDOM_TEAM)}
)  # fmt: skip
LEAST = having({"agent": count, "count": count, "share": share, "low": share, "high": share})
PREDICTOR = having(
    {"d": maybe(real), "joint_states": maybe(count)},
    auc_abstract=maybe(share), auc_full=maybe(share), episodes=count, unfair=count,
)  # fmt: skip


RATE = having({"rate": share, "low": share, "high": share, "unfair": count, "executions": count})


def rate(value: Any) -> bool:
    return RATE(value) and value["unfair"] <= value["executions"] > 0


def predictor(value: Any) -> bool:
    """What belongs together is there together."""
    return PREDICTOR(value) and (value["d"] is None) == (value["joint_states"] is None) and (
        ("episodes" in value) == ("unfair" in value)
    )  # fmt: skip


SUMMARY: dict[str, Holds] = {
    "task": text, "seed": count, "executed_steps": count, "charged_strict": count, "charged_paper": count,
    "confirmed_failures": count,
}  # fmt: skip
SUMMARY_MAY: dict[str, Holds] = {
    "preset": maybe(text),
    "index": lambda value: text(value) and value in INDICES,
    "engine": maybe(text),
    "suffix_failures": maybe(count),
    "distinct_failures_wide": maybe(count),
    "distinct_starts": maybe(count),
    "coverage_of": maybe(text),
    "index_quantiles": maybe(named(maybe(real))),
    "phases": maybe(named(real)),
    "cpu_seconds": maybe(real),
    "wall_seconds": maybe(real),
    "predictor": maybe(predictor),
    "ledger": maybe(named(SPENT)),
    "natural_rate": maybe(rate),
    "agents": each(count),
    "competence": maybe(COMPETENCE),
    "unfair_by_chance": maybe(share),
    "sides": maybe(named(each(count))),
    "worst_off": having({"agent": maybe(count), "unit": text, "votes": count, "least": each(LEAST)}),
}  # fmt: skip
BINS: Rule = FIELDS["coverage_bins"].metadata["rule"]
MANIFEST_MAY: dict[str, Holds] = {
    "settings": having({}, coverage_bins=BINS.holds),
    "distinct_distance": maybe(real),
    "versions": named(text),
    "policy": maybe(text),
    "key": maybe(text),
}


def wrong_names(values: Mapping[str, Any], needed: Mapping[str, Holds], also: Mapping[str, Holds]) -> list[str]:
    """What is not as it must be, as NAME=VALUE; a name that is needed and not there holds None."""
    rules = {**needed, **{name: holds for name, holds in also.items() if name in values}}
    return [f"{name}={shown(values.get(name))}" for name, holds in rules.items() if not holds(values.get(name))]


def shown(value: Any) -> str:
    text = repr(value) if not is_whole(value) or abs(value) < LARGEST else "a number of too many digits"
    return text if len(text) <= 80 else text[:77] + "..."
