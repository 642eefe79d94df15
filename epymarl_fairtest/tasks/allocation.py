"""What the name of an allocation means: `env`, one of the task's own, or a function of the user's."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.named_code import refuse_loose_code, refuse_standard_library
from epymarl_fairtest.tasks.contract import Allocation, Array, Task


def resolve_allocation(task: Task, name: str, *never_from: Path) -> Allocation:
    """`env`, an allocation of the task's own, or `package.module:function` of the user's, not from these folders."""
    if name in task.allocations:
        return task.allocations[name]
    if ":" not in str(name):
        raise FairTestError(
            f"allocation={name!r} is unknown for task {task.name}; allowed: {', '.join(task.allocations)}, "
            "or a function of your own written as package.module:function."
        )
    refuse_standard_library(f"allocation={name!r}", name)
    refuse_loose_code(f"allocation={name!r}", name, *never_from)
    return _checked(task, name, _imported(name))


def _imported(name: str) -> Allocation:
    module, _, attribute = name.partition(":")
    try:
        function: Any = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # the user's module may fail in any way while it is imported
        raise FairTestError(
            f"allocation={name!r} cannot be imported ({type(error).__name__}: {error}). Write it as "
            "package.module:function and make sure that the module is on PYTHONPATH."
        ) from error
    if not callable(function):
        raise FairTestError(
            f"allocation={name!r} is a {type(function).__name__}; it must be a function "
            "f(state, reward) -> one reward per agent."
        )
    allocation: Allocation = function
    return allocation


def _checked(task: Task, name: str, function: Allocation) -> Allocation:
    """A wrong allocation would silently make every verdict wrong: check each result."""

    def allocation(state: Array, reward: Array) -> Array:
        try:
            paid = np.asarray(function(state, reward), dtype=np.float64)
        except FairTestError:
            raise
        except Exception as error:  # the user's function may fail in any way
            raise FairTestError(f"allocation={name!r} failed ({type(error).__name__}: {error}).") from error
        expected = (*state.shape[:-1], task.n_agents)
        if paid.shape != expected:
            raise FairTestError(
                f"allocation={name!r} gave the shape {paid.shape} where {expected} is needed: for states "
                f"{state.shape} one reward per agent, with any leading axes kept."
            )
        if not np.isfinite(paid).all():
            raise FairTestError(f"allocation={name!r} gave NaN or infinity; every reward must be finite.")
        return paid

    return allocation
