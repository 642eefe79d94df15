"""Executing failures again: do they come out the same in the real environment?

Knows episodes and the engine of the real environment. A replay is no test: nothing is charged or judged anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.episode import Episodes, replay_tests

CONFIRMED, UNSTABLE, UNCHECKED = "confirmed", "unstable", "unchecked"
COMPARED = ("states", "actions", "rewards", "length")  # what happened; Q-values are why


def replay(failures: Episodes, real: Lockstep, *, restorable: bool) -> Episodes:
    """The failures as the real environment plays them; what a memory needs is looked at again, not trusted."""
    return real.execute(replay_tests(real.seen(failures) if restorable else failures, restorable=restorable))


def agrees(a: Episodes, b: Episodes) -> NDArray[np.bool_]:
    """Which rows are the same, bit for bit?"""
    same = [(getattr(a, name) == getattr(b, name)).reshape(len(a), -1).all(axis=1) for name in COMPARED]
    return np.logical_and.reduce(same)
