"""Replaying failures: do they come out the same in the real environment, bit for bit?

One that does not is unstable: it is kept, and left out of every count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.contract import Aftermath, Execute, Outcome, Step, Steps
from epymarl_fairtest.core.episodes import Episodes, Tests, replay_tests
from epymarl_fairtest.core.ledger import purpose

CONFIRMED, UNSTABLE, UNCHECKED = "confirmed", "unstable", "unchecked"
COMPARED = ("states", "actions", "rewards", "length")  # what happened; Q-values are why
REPLAY = purpose("replay", "failures again in the real environment, after the search (not charged)")


def replay(context: Aftermath) -> Steps:
    """The status of each failure; as many as the setting `replay` says, drawn at random, are executed for real."""
    count, wanted = context.recorded.failure_count(), context.settings.replay
    status, rows = np.full(count, UNCHECKED), np.arange(count)
    if wanted != "all" and count > int(wanted):
        # The stream is named as the setting once was: with another name, others would be drawn.
        rows = np.sort(context.generator("confirm").choice(count, int(wanted), replace=False))
    if len(rows):
        failures = context.recorded.failures(rows)
        tests = tests_again(failures, context.look, restorable=context.team.task.restorable)
        again = yield Execute(tests, real=True)
        status[rows] = np.where(agrees(failures, again), CONFIRMED, UNSTABLE)
    counts = {f"{name}_failures": int((status == name).sum()) for name in (UNSTABLE, CONFIRMED)}
    return Outcome(summary=counts, columns={"status": status}, uncounted=status == UNSTABLE)


def tests_again(failures: Episodes, look: Callable[[Episodes], Episodes], *, restorable: bool) -> Tests:
    """The tests that gave these failures; what a memory needs is looked at again, not trusted."""
    return replay_tests(look(failures) if restorable else failures, restorable=restorable)


def agrees(a: Episodes, b: Episodes) -> NDArray[np.bool_]:
    """Which rows are the same, bit for bit?"""
    same = [(getattr(a, name) == getattr(b, name)).reshape(len(a), -1).all(axis=1) for name in COMPARED]
    alike: NDArray[np.bool_] = np.logical_and.reduce(same)
    return alike


def replay_sentence(summary: Mapping[str, Any]) -> str:
    """How many were replayed, of how many, and what came of it."""
    confirmed, unstable = summary["confirmed_failures"], summary["unstable_failures"]
    replayed, failures = confirmed + unstable, summary["failures"] + unstable
    if not replayed:
        return "No failure was replayed in the real environment."
    were = "failure was" if failures == 1 else "failures were"
    text = f"{replayed:,} of {failures:,} {were} replayed in the real environment: {confirmed:,} agree"
    return text + (f", {unstable:,} do not and are not counted." if unstable else ".")


STEP = Step("replay", "replaying", REPLAY, replay, command="replay", order=1)
