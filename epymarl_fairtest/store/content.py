"""What manifest.json, summary.json and the columns of a run may hold, name by name: whoever reads them may rely on it.

A checksum shows an accident; whoever writes a file by hand can give it the right one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.settings import FIELDS, LARGEST, is_number, is_whole
from epymarl_fairtest.store.read import damaged

Holds = Callable[[Any], bool]


def count(value: Any) -> bool:
    return is_whole(value) and 0 <= value < LARGEST


def real(value: Any) -> bool:
    return is_number(value) and abs(value) < LARGEST and math.isfinite(value)


def seconds(value: Any) -> bool:
    return real(value) and value >= 0


def share(value: Any) -> bool:
    return real(value) and 0 <= value <= 1


def text(value: Any) -> bool:
    return isinstance(value, str)


def words(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable()


def maybe(holds: Holds) -> Holds:
    return lambda value: value is None or holds(value)


def each(holds: Holds) -> Holds:
    return lambda value: isinstance(value, list) and all(map(holds, value))


def named(holds: Holds) -> Holds:
    """A set of any names, each with such a value."""
    return lambda value: isinstance(value, dict) and all(map(holds, value.values()))


def having(needed: Mapping[str, Holds]) -> Holds:
    """A set that has these names at least."""
    return lambda value: (
        isinstance(value, dict) and all(name in value and holds(value[name]) for name, holds in needed.items())
    )


def anything(value: Any) -> bool:
    return True


RATE = having({"rate": share, "low": share, "high": share, "unfair": count, "executions": count})
RANDOM_TEAM = having(
    {"starts": count, "received": each(real), "return": real, "team_received": each(real), "team_return": real,
     "better": count, "worse": count, "p": share, "beaten": lambda value: isinstance(value, bool)}
)  # fmt: skip
COMPETENCE = having(
    {"executions": count, "received": each(real), "return": real, "undefined": share, "opposite_signs": share,
     "least_return": maybe(real), "random_team": maybe(RANDOM_TEAM)}
)  # fmt: skip
SITUATION = having({"rule": words, "precision": share, "recall": share, "base_rate": share})
EXPLAINED = having(
    {"explained": count, "with_decision": count, "situation": maybe(SITUATION),
     "causes": having(dict.fromkeys(("noise", "policy", "start"), count))}
)  # fmt: skip
POINT = having(
    {"step": count, "executions": count, "unfair": count, "undefined": share, "return": real, "worst_off": real,
     "best_off": real, **dict.fromkeys(("rate", "low", "high", "index"), maybe(share))}
)  # fmt: skip
TREND = having({"direction": words, "worse": count, "better": count, "p": share})
CURVE = having(
    {"index": words, "theta": share, "episodes": count, "points": each(POINT), "max_loss": share,
     "trend": maybe(TREND), **dict.fromkeys(("final", "best_return", "fairest"), maybe(count))}
)  # fmt: skip
LEAST = having({"agent": count, "count": count, "share": share, "low": share, "high": share})


def rate(value: Any) -> bool:
    return RATE(value) and value["unfair"] <= value["executions"] > 0


def curve(value: Any) -> bool:
    """Points in the order of training, and marks that are some of them."""
    if not CURVE(value):
        return False
    steps = [point["step"] for point in value["points"]]
    marks = [value[name] for name in ("final", "best_return", "fairest") if value[name] is not None]
    whole = all(len({point[name] is None for name in ("rate", "low", "high")}) == 1 for point in value["points"])
    return steps == sorted(set(steps)) and set(marks) <= set(steps) and whole


WORST_OFF = having({"agent": maybe(count), "unit": words, "votes": count, "least": each(LEAST)})


def worst_off(value: Any) -> bool:
    """Where there are votes, they are for somebody, and who is named has some."""
    if not WORST_OFF(value):
        return False
    named_agents = [one["agent"] for one in value["least"]]
    return bool(named_agents or not value["votes"]) and value["agent"] in (None, *named_agents)


def predictor(value: Any) -> bool:
    """What belongs together is there together."""
    if not named(lambda one: maybe(real)(one) or each(maybe(real))(one))(value):
        return False
    pairs = (("d", "joint_states"), ("episodes", "unfair"))
    if not all((value.get(one) is None) == (value.get(other) is None) for one, other in pairs):
        return False
    return all(maybe(real)(value.get(name)) for name in ("auc_abstract", "auc_full", *pairs[0], *pairs[1]))


SEARCHED: dict[str, Holds] = {  # what the summary of every search has
    **dict.fromkeys(("evaluated", "failures", "distinct_failures", "roots", "undefined", "unstable_failures"), count),
    **dict.fromkeys(("executed_episodes", "executed_steps", "charged_strict", "charged_paper"), count),
    **dict.fromkeys(("seed", "confirmed_failures"), count),
    **dict.fromkeys(("coverage", "theta"), share),
    **dict.fromkeys(("wall_seconds", "cpu_seconds"), seconds),
    **dict.fromkeys(("task", "method"), words),
}
SUMMARY: dict[str, Holds] = {  # what it may have, or be without
    **SEARCHED,
    **dict.fromkeys(("unique_failures", "suffix_failures", "distinct_failures_wide", "distinct_starts"), count),
    **dict.fromkeys(("preset", "engine", "coverage_of"), words),
    **dict.fromkeys(("index_quantiles", "jfi_quantiles"), named(maybe(share))),
    "index": lambda value: text(value) and value in INDICES,
    "phases": named(seconds),
    "growth": having(dict.fromkeys(("episodes", "failures", "distinct_failures"), each(count))),
    "distinct_area": seconds,
    "tenth_distinct_failure": count,
    "predictor": predictor,
    "ledger": named(having({"episodes": count, "steps": count})),
    "notes": named(anything),
    "natural_rate": rate,
    "agents": each(count),
    "competence": COMPETENCE,
    "curve": curve,
    "unfair_by_chance": share,
    "sides": named(each(count)),
    "explain": EXPLAINED,
    "worst_off": worst_off,
}
MANIFEST: dict[str, Holds] = {
    **dict.fromkeys(("fairtest", "python", "task", "engine", "host", "algorithm", "key", "policy_digest"), words),
    **dict.fromkeys(("policy", "command"), text),
    **dict.fromkeys(("seed", "training_pool", "time_limit"), count),
    "theta": share,
    "distinct_distance": seconds,
    "versions": named(words),
    "settings": named(anything),
    "env_args": named(anything),
}
COLUMNS = {  # of executions.npz and failures.npz -> kinds of numbers, axes
    **dict.fromkeys(("id", "root_seed", "parent", "start_step", "length", "start", "decisive_step"), ("iu", 1)),
    **dict.fromkeys(("operator", "purpose", "status", "cause"), ("U", 1)),
    **{"index": ("f", 1), "random": ("b", 1), "received": ("f", 2), "rewards": ("f", 3), "initial_state": ("f", 2)},
}


def refuse_odd_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Of a search, or of a study of the predictor, which counts nothing."""
    _refuse_odd(path, summary, SUMMARY, () if summary.get("method") == "predictor" else SEARCHED)


def refuse_odd_manifest(path: Path, manifest: Mapping[str, Any], needed: Collection[str] = ()) -> None:
    """With those of its settings that are `needed`."""
    _refuse_odd(path, manifest, MANIFEST, ("task", "settings"))
    settings = manifest["settings"]
    _refuse_odd(path, settings, {}, needed)
    rules: dict[str, Holds] = {name: field.metadata["rule"].holds for name, field in FIELDS.items()}
    _refuse(path, settings, [name for name, holds in rules.items() if name in settings and not holds(settings[name])])


def _refuse_odd(path: Path, values: Mapping[str, Any], rules: Mapping[str, Holds], needed: Collection[str]) -> None:
    """Every value that is there keeps its rule; None is what a run does not have."""
    lacking = [name for name in needed if values.get(name) is None]
    if lacking:
        raise damaged(path, f"it does not say {', '.join(lacking)}")
    _refuse(path, values, [n for n, holds in rules.items() if values.get(n) is not None and not holds(values[n])])


def _refuse(path: Path, values: Mapping[str, Any], odd: list[str]) -> None:
    if odd:
        raise damaged(path, "it says " + ", ".join(f"{name}={_shown(values[name])}" for name in odd))


def _shown(value: Any) -> str:
    text = repr(value) if not is_whole(value) or abs(value) < LARGEST else "a number of too many digits"
    return text if len(text) <= 80 else text[:77] + "..."


def refuse_odd_columns(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Every column that is there is of its kind, and what was received is a number."""
    for name, (kinds, axes) in COLUMNS.items():
        column = columns.get(name)
        if column is None or not column.size:
            continue
        odd = column.dtype.kind not in kinds or column.ndim != axes
        if odd or (name in ("received", "rewards") and not np.isfinite(column).all()):
            raise damaged(path, f"its column {name} is none of a run's")
