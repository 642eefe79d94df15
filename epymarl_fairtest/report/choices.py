"""What each agent thought of its actions at every step, for a player: the scores that its episode recorded.

Plain data; knows neither HTML nor the team.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.tasks.contract import Task

MOST = 4_000  # scores of one player: a page must stay below 5 MB


def choices_of(task: Task, scores: NDArray[np.float32], taken: NDArray[np.int16]) -> dict[str, Any] | None:
    """Scores (steps, agents, actions) and actions (steps, agents); None where there are none, or too many."""
    if not 0 < scores.size <= MOST:
        return None
    return {
        "what": "Probabilities" if _shares(scores) else "Q-values",
        "actions": [task.action_name(action) for action in range(scores.shape[-1])],
        "scores": [[[_short(score) for score in agent] for agent in step] for step in scores.tolist()],
        "taken": taken.tolist(),
    }


def _shares(scores: NDArray[np.float32]) -> bool:
    """Episodes record probabilities where the team gives logits (core/scores.py)."""
    return bool((scores >= 0).all() and np.allclose(scores.sum(axis=-1), 1, atol=1e-3))


def _short(score: float) -> float | None:
    return float(f"{score:.3g}") if np.isfinite(score) else None
