"""Questions that do not wait for each other: what they ask for at the same time is executed as one request.

A request goes through an episode step by step however few tests it has, and a test gives the same in any company.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from epymarl_fairtest.campaign.steps.contract import Execute
from epymarl_fairtest.campaign.steps.explain.cases import Asking
from epymarl_fairtest.core.episodes import Tests


def abreast(*askings: Asking[Any]) -> Asking[list[Any]]:
    """What each of these returns."""
    returned: list[Any] = [None] * len(askings)
    wanted: dict[int, Execute] = {}

    def go_on(number: int, answer: Any) -> None:
        try:
            wanted[number] = askings[number].send(answer)
        except StopIteration as end:
            returned[number] = end.value

    for number in range(len(askings)):
        go_on(number, None)
    while wanted:
        # Of a request that wants more than what is received, the whole answer belongs to who asked.
        alone = [number for number, one in wanted.items() if one.real or one.course or one.memory]
        now = {number: wanted.pop(number) for number in (alone[:1] or list(wanted))}
        episodes = (
            yield next(iter(now.values()))
            if len(now) == 1
            else Execute(joined([one.tests for one in now.values()]), course=False)
        )
        first = 0
        for number, one in now.items():
            last = first + len(one.tests)
            go_on(number, episodes if len(now) == 1 else episodes.take(slice(first, last)))
            first = last
    return returned


def joined(parts: Sequence[Tests]) -> Tests:
    """One batch of several. Those without forced actions, greedy agents, a prefix or a memory get some that change
    nothing: who begins at step 0 keeps nothing of a prefix, and remembers nothing."""
    for name, nothing in (("forced", -1), ("at_start", -1), ("greedy", False), ("memory", 0)):
        some = next((value for part in parts if (value := getattr(part, name)) is not None), None)
        if some is not None:
            parts = [
                _with(part, name, np.full_like(some, nothing, shape=(len(part), *some.shape[1:]))) for part in parts
            ]
    prefix = next((part.prefix for part in parts if part.prefix is not None), None)
    if prefix is not None:
        parts = [
            replace(part, prefix=prefix, of=np.zeros(len(part), np.int64)) if part.prefix is None else part
            for part in parts
        ]
    return Tests.concatenate(parts)


def _with(part: Tests, name: str, value: Any) -> Tests:
    return part if getattr(part, name) is not None else replace(part, **{name: value})
