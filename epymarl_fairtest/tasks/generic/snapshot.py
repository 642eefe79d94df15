"""The whole of an environment, copied: what every layer holds, into another environment that was made alike.

Plain deepcopy and pickle fail on PettingZoo (EzPickle makes a new environment from the arguments) and where handles are
held. Here each layer's own variables are copied one by one, with one memo in which a layer stands for the layer
at the same place of the other environment; what cannot be copied (a window, a module, a lock) stays what it is there.
"""

from __future__ import annotations

import copy
from typing import Any

from epymarl_fairtest.tasks.layers import wrappers


def transfer(source: Any, target: Any) -> None:
    """Put `target`, and all its layers, into the state of `source`; both were made with the same arguments."""
    here, there = wrappers(source), wrappers(target)
    # By name: a factory may make the class anew each time.
    if [type(layer).__qualname__ for layer in here] != [type(layer).__qualname__ for layer in there]:
        raise ValueError("the two environments are not made of the same layers")
    memo: dict[int, Any] = {id(one): other for one, other in zip(here, there, strict=True)}
    for one, other in zip(here, there, strict=True):
        own, new = vars(one), vars(other)
        for name in [name for name in new if name not in own]:
            del new[name]
        for name, value in own.items():
            try:
                new[name] = copy.deepcopy(value, memo)
            except Exception:  # a handle of the system's, in whatever way it refuses
                memo[id(value)] = new.get(name)
