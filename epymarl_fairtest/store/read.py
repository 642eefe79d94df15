"""Reading what a run left behind: which formats, checked values and arrays, one error for every kind of damage.

No pickle. A checksum shows an accident; whoever writes a file by hand can give it the right one, so every value that
somebody reads has a rule here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.settings import FIELDS, LARGEST, Rule, is_number, is_whole
from epymarl_fairtest.store.checksum import verify

FORMAT = 3


def _is_count(value: Any) -> bool:
    return is_whole(value) and 0 <= value < LARGEST


def _is_finite(value: Any) -> bool:
    return is_number(value) and abs(value) < LARGEST and math.isfinite(value)


def _each(value: Any, holds: Any) -> bool:
    """Is it a set of names and values that are all like that?"""
    return isinstance(value, dict) and all(holds(part) for part in value.values())


COUNT = Rule("a count", _is_count)
WORDS = Rule("text", lambda v: isinstance(v, str) and v.isprintable())
SECONDS = Rule("seconds", lambda v: _is_finite(v) and v >= 0)
SHARES = Rule("shares by name", lambda v: _each(v, lambda x: x is None or (_is_finite(x) and 0 <= x <= 1)))
TIMES = Rule("seconds by name", lambda v: _each(v, SECONDS.holds))
SPENT = Rule("episodes and steps by purpose", lambda v: _each(v, lambda x: _each(x, _is_count) and len(x) == 2))
NAMES = Rule("names and values", lambda v: isinstance(v, dict))
INDEX = Rule("an index", lambda v: isinstance(v, str) and v in INDICES)
LEARNED = Rule(
    "numbers, or lists of them, by name",
    lambda v: _each(
        v, lambda x: x is None or _is_finite(x) or (isinstance(x, list) and all(p is None or _is_finite(p) for p in x))
    ),
)
COUNTED = ("executed_episodes", "charged_strict", "charged_paper")
SUMMARY: dict[str, Rule] = {
    **dict.fromkeys((*COUNTED, "executed_steps", "unique_failures", "suffix_failures", "confirmed_failures"), COUNT),
    **dict.fromkeys(("evaluated", "failures", "distinct_failures", "roots", "undefined", "unstable_failures"), COUNT),
    **dict.fromkeys(("task", "method", "preset", "engine"), WORDS),
    **dict.fromkeys(("wall_seconds", "cpu_seconds"), SECONDS),
    **dict.fromkeys(("index_quantiles", "jfi_quantiles"), SHARES),
    "seed": COUNT,
    "index": INDEX,
    "phases": TIMES,
    "predictor": LEARNED,
    "ledger": SPENT,
    "notes": NAMES,
}
MANIFEST: dict[str, Rule] = {
    **dict.fromkeys(("fairtest", "python", "task", "engine", "host", "algorithm", "key", "policy_digest"), WORDS),
    **dict.fromkeys(("policy", "command"), Rule("text", lambda v: isinstance(v, str))),
    **dict.fromkeys(("seed", "training_pool", "time_limit"), COUNT),
    "theta": Rule("a number from 0 to 1", lambda v: _is_finite(v) and 0 <= v <= 1),
    "distinct_distance": SECONDS,
    "versions": Rule("text by name", lambda v: _each(v, WORDS.holds)),
    "settings": NAMES,
    "env_args": NAMES,
}
NEEDED_OF_SEARCH = ("task", "seed", "executed_steps", *COUNTED, "wall_seconds", "cpu_seconds", "confirmed_failures")


def refuse_odd_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Of a search, or of a study of the predictor, which counts nothing."""
    _refuse_odd(path, summary, SUMMARY, () if summary.get("method") == "predictor" else NEEDED_OF_SEARCH)


def refuse_odd_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    _refuse_odd(path, manifest, MANIFEST, ("settings",))
    _refuse_odd(path, manifest["settings"], {name: field.metadata["rule"] for name, field in FIELDS.items()})


def _refuse_odd(path: Path, values: Mapping[str, Any], rules: Mapping[str, Any], needed: Collection[str] = ()) -> None:
    """Every value that is there keeps its rule; None is what a run does not have."""
    lacking = [name for name in needed if values.get(name) is None]
    if lacking:
        raise damaged(path, f"it does not say {', '.join(lacking)}")
    for name, rule in rules.items():
        value = values.get(name)
        if value is not None and not rule.holds(value):
            text = repr(value)
            shown = text if len(text) <= 60 else f"{text[:57]}..."
            raise damaged(path, f"it says {name}={shown}, which is not {rule.allowed}")


def refuse_missing(folder: Path) -> None:
    """Refuse what is not a folder."""
    if not folder.is_dir():
        what = f"{str(folder)!r} is a file." if folder.exists() else f"There is no folder {str(folder)!r}."
        raise FairTestError(f"{what} Name the folder of a run; `fairtest runs` lists them.")


def refuse_other_formats(folder: Path) -> None:
    """Refuse a run folder of another format than this version's."""
    if not (folder / "manifest.json").is_file():
        return
    try:
        number = json.loads((folder / "manifest.json").read_bytes())["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return  # not a run folder, or a damaged manifest: whoever reads it says so
    if isinstance(number, int) and number != FORMAT:
        newer = "a newer" if number > FORMAT else "an older"
        raise FairTestError(
            f"{str(folder)!r} was written by {newer} FairTest (format {number}; this one reads format {FORMAT}): read"
            " it with the version that manifest.json names, or run it again."
        )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. A checksum that it carries is not verified."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise damaged(path, "it is no file")
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise damaged(path, error) from error
    if not isinstance(value, dict):
        raise damaged(path, "it is not a set of names and values")
    return value


def damaged(path: Path, why: object) -> FairTestError:
    return FairTestError(f"{str(path)!r} is damaged: {why}.")


COLUMNS = {
    **dict.fromkeys(("id", "root_seed", "parent", "start_step", "length"), ("iu", 1)),
    **dict.fromkeys(("operator", "purpose", "status"), ("U", 1)),
    **{"index": ("f", 1), "random": ("b", 1), "received": ("f", 2), "rewards": ("f", 3), "initial_state": ("f", 2)},
}
"""Columns of executions.npz and failures.npz -> kinds of numbers, axes."""


def refuse_odd_columns(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Every column that is there is of its kind, and what was received is a number."""
    for name, (kinds, axes) in COLUMNS.items():
        column = columns.get(name)
        if column is None or not column.size:
            continue
        odd = column.dtype.kind not in kinds or column.ndim != axes
        if odd or (name in ("received", "rewards") and not np.isfinite(column).all()):
            raise damaged(path, f"its column {name} is none of a run's")


def read_arrays(path: Path, names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz, all of them or those named; refused if its run promised another checksum."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise ValueError("it is no file")
        verify(path)
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if names is None or name in names}
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise ValueError("it holds more than arrays")
        return arrays
    except FairTestError:
        raise
    except Exception as error:  # a damaged archive fails in zipfile, zlib, struct, tokenize and elsewhere
        raise FairTestError(f"{str(path)!r} cannot be read ({type(error).__name__}: {error}).") from error
