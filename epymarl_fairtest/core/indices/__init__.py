"""Fairness indices: one number for how evenly a team shares. One file each; `fairtest.indices` adds more.

An index lies in [0, 1], is 1 where all agents received the same, and is NaN where nobody received anything.
"""

from __future__ import annotations

from epymarl_fairtest.core.indices.contract import Index, complaint
from epymarl_fairtest.core.registry import Registry

INDICES: Registry[Index] = Registry(
    "fairness index",
    package="epymarl_fairtest.core.indices",
    attribute="INDEX",
    group="fairtest.indices",
    complaint=complaint,
)

__all__ = ["INDICES", "Index"]
