"""How an agent sees a start: what is around it, nearest first. Parts from which tasks make their features."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def straight(a: Array, b: Array) -> Array:
    """The distance of points (..., 2)."""
    apart = a - b
    x, y = apart[..., 0], apart[..., 1]
    length: Array = np.sqrt(x * x + y * y)  # a sum over two numbers each takes twice as long
    return length


def nearest_first(by: Array, count: int) -> NDArray[np.int64]:
    """For each row of distances (..., things) the numbers of the `count` nearest things, fewer if there are fewer."""
    return np.argsort(by, axis=-1, kind="stable")[..., :count]


def pick(values: Array, order: NDArray[np.int64]) -> Array:
    """The values (..., things, K) of the things in this order (..., count), side by side: (..., count * K)."""
    things, size = values.shape[-2:]
    shape = order.shape[:-1]
    first = things * np.arange(math.prod(shape)).reshape(*shape, 1)  # all things one below another
    picked: Array = values.reshape(-1, size).take(first + order, axis=0).reshape(*shape, -1)
    return picked


def without_oneself(values: Array) -> Array:
    """What each agent knows of the others: (..., agents, agents, K) without the diagonal."""
    agents = values.shape[-3]
    others = [[other for other in range(agents) if other != agent] for agent in range(agents)]
    return values[..., np.arange(agents)[:, None], np.array(others, np.int64).reshape(agents, agents - 1), :]


def numbered(views: list[Array]) -> Array:
    """All parts (..., agents, K) side by side, and the number of the agent last."""
    shape = views[0].shape[:-1]
    number = np.broadcast_to(np.arange(shape[-1], dtype=np.float64)[:, None], (*shape, 1))
    return np.concatenate([*views, number], axis=-1)
