"""What would have happened: each failure once more with its best decision, or without exploration if that did it.

Under the failure's own exploration, so that everything up to the decision is the same and can be watched beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.contract import Execute
from epymarl_fairtest.campaign.steps.explain.cases import Asking, Cases, Decisions
from epymarl_fairtest.campaign.steps.explain.cause import NOISE
from epymarl_fairtest.core.episodes import Episodes

DECISION, GREEDY, SMALLEST, FAIR = "decision", "greedy", "smallest", "fair"
KEPT = ("states", "actions", "rewards", "length", "q")


def kind_of(entry: dict[str, Any]) -> str | None:
    """Which other course is worth watching; None: nothing better is known."""
    if entry["decisions"]:
        return DECISION
    return GREEDY if entry["cause"] == NOISE and not entry["greedy_unfair"] else None


def what_if(cases: Cases, entries: Sequence[dict[str, Any]]) -> Asking[dict[str, NDArray[Any]]]:
    """One row for each case that has another course: its id, the kind and step of the change, and the episode."""
    kinds = [kind_of(entry) for entry in entries]
    decided, quiet = (
        np.array([n for n, one in enumerate(kinds) if one == kind], np.int64) for kind in (DECISION, GREEDY)
    )
    best = [entries[n]["decisions"][0] for n in decided]
    numbers = np.array([[one["step"], one["agent"] - 1, one["action_number"]] for one in best], np.int64).reshape(-1, 3)
    changes = Decisions(*numbers.T)
    parts: list[Episodes] = []
    if len(decided):
        forced = changes.forced(cases, decided, np.arange(len(decided)))
        parts.append((yield Execute(cases.tests(decided, changes.step, **forced))))
    if len(quiet):
        parts.append((yield Execute(cases.tests(quiet, cases.first[quiet], greedy=True))))
    rows, step = np.concatenate([decided, quiet]), np.concatenate([changes.step, cases.first[quiet]])
    kept = Episodes.concatenate(parts) if parts else cases.episodes.take(rows)
    before = np.arange(kept.states.shape[1]) < step[:, None]
    kept.states[before] = cases.episodes.states[rows][before]  # what was the same all along
    kept.q[before[:, :-1]] = cases.episodes.q[rows][before[:, :-1]]
    return {
        "id": cases.episodes.id[rows],
        "kind": np.array([kinds[n] for n in rows], "U8"),
        "step": step.astype(np.int64),
        **{name: getattr(kept, name) for name in KEPT},
    }


def drawn(cases: Cases, examples: dict[int, dict[str, Any]], parts: Sequence[Episodes]) -> dict[str, NDArray[Any]]:
    """The episodes of smallest examples and of their fair neighbours, row by row."""
    found = Episodes.concatenate(parts) if parts else cases.episodes.take(slice(0, 0))
    kinds = [kind for part in parts for kind in (SMALLEST, FAIR)[: len(part)]]
    owner = [n for n, part in zip(examples, parts, strict=True) for _ in range(len(part))]
    return {
        "id": cases.episodes.id[np.array(owner, np.int64)],
        "kind": np.array(kinds, "U8"),
        "step": np.zeros(len(owner), np.int64),
        **{name: getattr(found, name) for name in KEPT},
    }


def arrays_of(
    entries: Sequence[dict[str, Any]],
    curves: Sequence[NDArray[np.float64]],
    other: Sequence[dict[str, NDArray[Any]]],
    examples: Sequence[dict[str, NDArray[Any]]],
) -> dict[str, NDArray[Any]]:
    """explain.npz: P(unfair) by step of every explained failure, the other courses as what_if_..., and the smallest
    examples with their fair neighbours as smallest_..."""
    joined = {
        f"{of}_{name}": np.concatenate([part[name] for part in parts])
        for of, parts in (("what_if", other), ("smallest", examples))
        for name in parts[0]
    }
    ids = np.array([entry["id"] for entry in entries], np.int64)
    return {"id": ids, "p_unfair_by_step": np.concatenate(curves), **joined}
