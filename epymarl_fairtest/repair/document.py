"""repair.json: what it holds, name by name, and reading it back. docs/repairing.md describes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.repair.verdict import VERDICTS
from epymarl_fairtest.store.content import Holds, count, each, having, maybe, named, real, share, text, words
from epymarl_fairtest.team.checkpoint import is_plain

FILE = "repair.json"
FORMAT = 1
EARLIER: dict[str, Any] = {"learner": {}}  # what earlier versions did not write, and what it was
MEASURED: dict[str, Holds] = {
    "rate": maybe(share), "low": maybe(share), "high": maybe(share), "undefined": share, "executions": count,
    "return": real, "worst_off": real, "best_off": real, "policy": text,
}  # fmt: skip
SEARCHED = maybe(named(maybe(count)))
TEAM = having(MEASURED | {"search": SEARCHED})
TRAINED = having(
    MEASURED | {
        "seed": count, "steps": count, "return_change": real, "return_change_low": real,
        "return_change_high": real, "worst_off_change": real, "newly_unfair": share,
        "formerly_fair": count, "search": SEARCHED, "regression": SEARCHED, "training_cpu_seconds": real,
    }
)  # fmt: skip
JUDGED = having(
    {"verdict": lambda value: value in VERDICTS, "why": words, "weight": real,
     "seed_cpu_seconds": real, "newly_unfair_beyond_control": maybe(real), "beyond_control_high": maybe(real)}
)  # fmt: skip
POINT = having(MEASURED | {"seed": count, "arm": words, "weight": maybe(real), "chosen": lambda v: isinstance(v, bool)})
DOCUMENT: dict[str, Holds] = {
    "format": count,
    "verdict": lambda value: value in VERDICTS,
    "sentence": words,
    "before": TEAM,
    "control": each(TRAINED),
    "repaired": each(lambda value: TRAINED(value) and JUDGED(value)),
    "checkpoint": maybe(having(MEASURED | {"step": count, "candidates": count})),
    "points": each(POINT),
    "stopped": each(having({"arm": words, "why": text})),
    "welfare": having({"name": words, "why": words, "weights": each(real)}),
    **dict.fromkeys(("index", "task", "algorithm", "host", "fairtest"), words),
    **dict.fromkeys(("theta", "share", "max_loss"), share),
    **dict.fromkeys(("steps", "budget"), count),
    "learner": named(is_plain),
    "notes": each(text),
    "command": text,
}


def odd(document: Any) -> list[str]:
    """The names whose values are not what a repair writes."""
    if not isinstance(document, dict):
        return ["everything"]
    return [name for name, holds in DOCUMENT.items() if name not in document or not holds(document[name])]


def read_repair(folder: Path) -> dict[str, Any]:
    path = folder / FILE
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise FairTestError(f"{str(path)!r} is not a readable repair: {error}.") from error
    if isinstance(document, dict):
        document = EARLIER | document
    wrong = odd(document)
    if wrong:
        raise FairTestError(f"{str(path)!r} is not what `fairtest repair` writes: {', '.join(wrong)}.")
    found: dict[str, Any] = document
    return found
