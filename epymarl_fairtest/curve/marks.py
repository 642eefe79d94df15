"""Which points of a curve matter: the final team, the best return, and the fairest team that loses little of it."""

from __future__ import annotations

from collections.abc import Sequence

from epymarl_fairtest.curve.point import Point

MAX_LOSS = 0.02  # of the best return, unless another is asked for


def best_return(points: Sequence[Point]) -> Point | None:
    """Of equal ones the later."""
    return max(points, key=lambda point: (point.team_return, point.step), default=None)


def least_return(best: float, max_loss: float) -> float:
    """What a team must return at least: returns may be negative, and a loss is a share of their size."""
    return best - max_loss * abs(best)


def loss_of(value: float, best: float) -> float:
    """How much of the best return is lost, as a share of its size."""
    return (best - value) / abs(best) if best else (0.0 if value >= best else float("inf"))


def within(points: Sequence[Point], max_loss: float) -> list[Point]:
    """Those that lose no more than this share of the best return and have a rate."""
    best = best_return(points)
    if best is None:
        return []
    least = least_return(best.team_return, max_loss)
    return [point for point in points if point.team_return >= least and point.rate is not None]


def fairest(points: Sequence[Point], max_loss: float = MAX_LOSS) -> Point | None:
    """The lowest natural rate within the loss; of equal ones the better return, then the later."""
    near = within(points, max_loss)
    return min(near, key=lambda point: (point.unfair / point.executions, -point.team_return, -point.step), default=None)
