"""explain.json and explain.npz, read back: what they must hold for anybody to rely on them.

docs/explaining.md says what each name means.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.store.checksum import verify
from epymarl_fairtest.store.content import Holds, count, each, having, maybe, named, real, share, words
from epymarl_fairtest.store.read import damaged, read_arrays, read_json

FILE, ARRAYS = "explain.json", "explain.npz"
FORMAT = 1


def flag(value: Any) -> bool:
    return isinstance(value, bool)


DECISION = having(
    {"agent": count, "step": count, "action": words, "instead_of": words, "action_number": count,
     "instead_of_number": count, "slip": flag, "streams": count, "p_unfair": share, "p_unfair_before": share,
     "worst_off_gain": real, "team_change": real, "scores": each(maybe(real))}
)  # fmt: skip
RESPONSIBILITY = having(
    {"agent": maybe(count), "values": each(having({"agent": count, "value": real, "error": real, "by": words}))}
)
NEIGHBOUR = having({"state": each(real), "p_unfair": share, "distance": real})
SMALLEST = having(
    {"origin": words, "edits": each(words), "p_unfair": share, "greedy": flag, "stream": words, "state": each(real),
     "confirmed": flag, "unfair": flag, "nearest_fair": maybe(NEIGHBOUR)}
)  # fmt: skip
FAILURE = having(
    {"id": count, "cause": lambda value: value in ("noise", "policy", "start"), "index": maybe(share),
     "p_unfair": share, "p_unfair_low": share, "p_unfair_high": share, "greedy_unfair": flag,
     "avoided_by": maybe(words), "deviations_tried": count, "start_step": count, "length": count,
     "committed_at": count, "gap_opens_at": count, "course": each(each(real)), "worst_off": each(count),
     "decisions": each(DECISION), "responsibility": maybe(RESPONSIBILITY), "smallest": maybe(SMALLEST)}
)  # fmt: skip
CONDITION = having({"feature": words, "above": flag, "threshold": real})
SITUATION = having(
    {"rule": words, "kind": words, "size": count, "precision": share, "recall": share, "base_rate": share,
     "covered": count, "executions": count, "conditions": each(CONDITION)}
)  # fmt: skip
CAUSES = having(dict.fromkeys(("noise", "policy", "start"), count))
OVERVIEW: dict[str, Holds] = {
    **dict.fromkeys(("explained", "with_decision", "committed_at_first"), count),
    **dict.fromkeys(("avoided_by", "responsible"), named(count)),
    "causes": CAUSES,
}
DOCUMENT: dict[str, Holds] = {
    **OVERVIEW,
    "format": lambda value: value == FORMAT,
    **dict.fromkeys(("task", "engine"), words),
    "theta": share,
    "restored": flag,
    "situations": each(SITUATION),
    "failures": each(FAILURE),
}
SHAPES = {
    "id": 1,
    "kind": 1,
    "step": 1,
    "states": 3,
    "actions": 3,
    "rewards": 3,
    "length": 1,
    "q": 4,
}  # axes, as what_if_... and smallest_...

LATER = {"q"}  # earlier explanations do not hold the scores


def read_explanation(run: Path) -> dict[str, Any] | None:
    """What the run says about why; None where it was not asked."""
    path = run / FILE
    if not path.is_file():
        return None
    verify(path)
    document = read_json(path)
    odd = [name for name, holds in DOCUMENT.items() if name not in document or not holds(document[name])]
    if odd:
        raise damaged(path, f"it does not hold {', '.join(odd)} as an explanation does")
    return document


def read_courses(run: Path, of: str) -> dict[str, NDArray[Any]]:
    """The other courses of failures (`what_if`) or their smallest examples (`smallest`), by name and without that in
    front; {} where there are none."""
    path = run / ARRAYS
    if not path.is_file():
        return {}
    named = {name: values for name, values in read_arrays(path).items() if name.startswith(f"{of}_")}
    arrays = {name.removeprefix(f"{of}_"): values for name, values in named.items()}
    known = SHAPES.keys() - LATER <= arrays.keys() <= SHAPES.keys()
    fits = known and all(values.ndim == SHAPES[name] for name, values in arrays.items())
    if not fits or len({len(one) for one in arrays.values()}) != 1:
        raise damaged(path, "its columns do not hold other courses of failures")
    states, actions, length = arrays["states"], arrays["actions"], arrays["length"]
    scored = "q" not in arrays or arrays["q"].shape[:3] == actions.shape
    if states.shape[1] != actions.shape[1] + 1 or actions.shape != arrays["rewards"].shape or not scored:
        raise damaged(path, "its columns do not fit together")
    if not (np.isfinite(arrays["rewards"]).all() and ((length >= 0) & (length <= actions.shape[1])).all()):
        raise damaged(path, "its columns hold odd numbers")
    return arrays
