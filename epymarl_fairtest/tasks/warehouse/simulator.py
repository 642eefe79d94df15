"""rware's Warehouse, read and written as numbers: robots, shelves, requests and its random numbers.

State: row, col, direction, shelf carried (its number from 1, 0: none), whether that shelf has been delivered, and
whether the last step brought a shelf to a goal, of each robot; the cell of each shelf, counted row by row; the numbers
of the shelves that are requested; the steps since the last delivery; the random numbers' state, from which the next
requests are drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
ROBOT = 6  # numbers of each
ROW, COL, FACING, SHELF, DELIVERED, BROUGHT = range(ROBOT)
WORD = 2**32
RANDOM = 10  # numbers of a PCG64: 4 words each for its state and its increment, and the half of a draw that is left
ELSEWHERE = -1  # before the step that brought a shelf


def is_warehouse(inner: Any) -> bool:
    """Robots that send messages have actions of several parts, which no host can choose: not ours."""
    needed = ("request_queue", "highways", "goals", "_cur_inactive_steps", "_recalc_grid", "_make_obs")
    named = any(cls.__name__ == "Warehouse" for cls in type(inner).__mro__)
    return named and all(hasattr(inner, name) for name in needed) and not getattr(inner, "msg_bits", 1)


def read_state(inner: Any) -> Array:
    robots = [number for agent in inner.agents for number in _robot(inner, agent)]
    cells = [int(shelf.y) * inner.grid_size[1] + int(shelf.x) for shelf in inner.shelfs]
    requests = [shelf.id for shelf in inner.request_queue]
    numbers = [*robots, *cells, *requests, inner._cur_inactive_steps, *_random_numbers(inner.np_random)]
    return np.array(numbers, np.float64)


def _robot(inner: Any, agent: Any) -> list[int]:
    here, shelf = (int(agent.x), int(agent.y)), agent.carrying_shelf
    came = agent.prev_x is not None and (agent.prev_x, agent.prev_y) != here
    brought = came and shelf is not None and here in [(int(x), int(y)) for x, y in inner.goals]
    carried = 0 if shelf is None else shelf.id
    return [here[1], here[0], agent.dir.value, carried, int(agent.has_delivered), int(brought)]


def write_state(inner: Any, state: Array, step: int) -> None:
    """After a reset, which makes the robots and the shelves."""
    numbers = [int(number) for number in state]
    count, cols = len(inner.agents), inner.grid_size[1]
    cells, rest = numbers[ROBOT * count :], len(inner.shelfs)
    for shelf, cell in zip(inner.shelfs, cells[:rest], strict=True):
        shelf.y, shelf.x = divmod(cell, cols)
    facing = type(inner.agents[0].dir)
    for number, agent in enumerate(inner.agents):
        row, col, direction, shelf, delivered, brought = numbers[ROBOT * number : ROBOT * (number + 1)]
        agent.x, agent.y, agent.dir = col, row, facing(direction)
        agent.prev_x, agent.prev_y = (ELSEWHERE, ELSEWHERE) if brought else (col, row)
        agent.carrying_shelf = inner.shelfs[shelf - 1] if shelf else None
        agent.has_delivered = bool(delivered)
    wanted = cells[rest : rest + inner.request_queue_size]
    inner.request_queue = [inner.shelfs[number - 1] for number in wanted]
    inner._cur_inactive_steps, inner._cur_steps = cells[rest + inner.request_queue_size], step
    _set_random_numbers(inner.np_random, cells[-RANDOM:])
    inner._recalc_grid()


def _random_numbers(generator: np.random.Generator) -> list[int]:
    kept = generator.bit_generator.state
    large = [kept["state"]["state"], kept["state"]["inc"]]
    words = [(number >> (32 * place)) % WORD for number in large for place in range(4)]
    return [*words, kept["has_uint32"], kept["uinteger"]]


def _set_random_numbers(generator: np.random.Generator, words: list[int]) -> None:
    large = [sum(word << (32 * place) for place, word in enumerate(words[start : start + 4])) for start in (0, 4)]
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": large[0], "inc": large[1]},
        "has_uint32": words[8],
        "uinteger": words[9],
    }
