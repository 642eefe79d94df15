"""Are two batches the same, bit for bit? If not, which array and which row is the first that differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.episodes import Episodes, Tests

Arrays = dict[str, NDArray[Any]]


def arrays_of(value: Episodes | Tests) -> Arrays:
    """Every array of a batch by its name, those of a prefix too; what is not there is left out."""
    arrays: Arrays = {}
    for field in fields(value):
        one = getattr(value, field.name)
        if isinstance(one, Episodes):
            arrays |= {f"{field.name}.{name}": array for name, array in arrays_of(one).items()}
        elif one is not None:
            arrays[field.name] = one
    return arrays


def difference(a: Mapping[str, NDArray[Any]], b: Mapping[str, NDArray[Any]]) -> str | None:
    """The first difference between two sets of arrays, as a message says it; None where there is none."""
    if a.keys() != b.keys():
        return f"only one of them has {', '.join(sorted(a.keys() ^ b.keys()))}"
    for name, left in a.items():
        right = b[name]
        if (left.dtype, left.shape) != (right.dtype, right.shape):
            return f"{name} is {left.dtype} {left.shape} in one and {right.dtype} {right.shape} in the other"
        if left.tobytes() != right.tobytes():
            rows = [row for row in range(len(left)) if left[row].tobytes() != right[row].tobytes()]
            return f"{name} differs in row {rows[0]} ({len(rows)} of {len(left)} rows differ)"
    return None


def assert_same(a: Episodes | Tests, b: Episodes | Tests, what: str) -> None:
    """`what` is the sentence that is wrong if they differ."""
    unlike = difference(arrays_of(a), arrays_of(b))
    assert unlike is None, f"{what}: {unlike}"


def copied(value: Episodes | Tests) -> Arrays:
    return {name: np.copy(array) for name, array in arrays_of(value).items()}
