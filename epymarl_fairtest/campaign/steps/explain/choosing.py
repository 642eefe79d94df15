"""Which failures are explained: those that the page shows, then one of each different failure, the worst first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.packing import Packing
from epymarl_fairtest.campaign.selection import failures_to_watch, spread_evenly, trajectories_of
from epymarl_fairtest.campaign.steps.contract import Aftermath
from epymarl_fairtest.campaign.steps.explain.limits import Limit, limit_of, steps_of

AT_ONCE = 1000  # failures that are read at once
COMPARED = 10  # times as many of the worst as can be explained, and of the rest, are told apart: enough to differ
Rows = NDArray[np.int64]


def different_failures(context: Aftermath) -> tuple[Rows, Limit]:
    """Rows of the failures in the order in which they are explained, and what limits their number.

    Where there are more different failures than that, half of the places go to the worst and half are spread evenly
    over the rest, so that what is said of the failures is not said of the worst alone.
    """
    count, task = context.recorded.failure_count(), context.team.task
    if not count or context.settings.explain == 0:
        return np.empty(0, np.int64), Limit()
    index, roots, steps = np.empty(count), np.empty(count, np.int64), 0.0
    found = []
    for rows in np.split(np.arange(count), np.arange(AT_ONCE, count, AT_ONCE)):
        failures = context.recorded.failures(rows)
        index[rows], roots[rows] = context.judge.index(context.judge.received(failures.rewards)), failures.root_seed
        steps += steps_of(context, failures)
        found.append(trajectories_of(task, failures))
    limit, most = limit_of(context, steps / count), _most(context)
    most = most if limit.held_to is None else limit.held_to
    paths, lengths = (np.concatenate(parts) for parts in zip(*found, strict=True))
    stable = np.arange(count) if context.uncounted is None else np.flatnonzero(~context.uncounted)
    watched = stable
    if len(stable):
        watched = np.concatenate(failures_to_watch(index, roots, stable, lambda rows: (paths[rows], lengths[rows])))
    order = stable[np.argsort(index[stable], kind="stable")]
    if task.state_size:
        own = context.settings.distinct_distance
        distance = task.distinct_distance if own is None else own
        different = _different(distance, paths, lengths, _some(order, most))
        if most is not None and len(different) < most:
            different = _different(distance, paths, lengths, order)
    else:
        different = order[np.sort(np.unique(roots[order], return_index=True)[1])]
    return _at_most(watched, different[~np.isin(different, watched)], most), limit


def _most(context: Aftermath) -> int | None:
    """How many the setting says; None: all of them."""
    return None if context.settings.explain == "all" else int(context.settings.explain)


def _some(order: Rows, most: int | None) -> Rows:
    """Many times as many as can be explained: the worst, and others spread evenly over the rest."""
    if most is None:
        return order
    worst, rest = order[: COMPARED * most], order[COMPARED * most :]
    return np.concatenate([worst, rest[spread_evenly(len(rest), COMPARED * most)]])


def _different(distance: float, paths: NDArray[np.float32], lengths: NDArray[np.integer], rows: Rows) -> Rows:
    """Those of these rows that are far from all before them."""
    return rows[Packing(distance).add(paths[rows], lengths[rows])]


def _at_most(watched: Rows, different: Rows, most: int | None) -> Rows:
    if most is None or len(watched) + len(different) <= most:
        return np.concatenate([watched, different])
    left = max(most - len(watched), 0)
    worst, rest = different[: (left + 1) // 2], different[(left + 1) // 2 :]
    return np.concatenate([watched[:most], worst, rest[spread_evenly(len(rest), left // 2)]])
