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
    status = np.full(context.recorded.failure_count(), UNCHECKED)
    # The stream is named as the setting once was: with another name, others would be drawn.
    generator, (some, most) = context.generator("confirm"), context.settings.replays
    rows = _drawn(np.arange(len(status)), some, generator)
    while len(rows):
        failures = context.recorded.failures(rows)
        tests = tests_again(failures, context.look, restorable=context.team.task.restorable)
        again = yield Execute(tests, real=True)
        status[rows] = np.where(agrees(failures, again), CONFIRMED, UNSTABLE)
        if (status != UNSTABLE).all():
            break
        unchecked = np.flatnonzero(status == UNCHECKED)
        rows = _drawn(unchecked, most - (len(status) - len(unchecked)), generator)
    counts = {f"{name}_failures": int((status == name).sum()) for name in (UNSTABLE, CONFIRMED)}
    return Outcome(summary=counts, columns={"status": status}, uncounted=status == UNSTABLE)


def _drawn(rows: NDArray[np.int64], count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    return rows if len(rows) <= count else np.sort(generator.choice(rows, count, replace=False))


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
