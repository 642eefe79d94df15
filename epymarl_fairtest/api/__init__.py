"""The Python interface, and what the commands share with it: test a team, look at a run, compare two, repair.

Each name is imported when it is first used: `fairtest run` needs none of them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epymarl_fairtest.api.comparing import Comparison
    from epymarl_fairtest.api.repaired import Repaired
    from epymarl_fairtest.api.result import Result
    from epymarl_fairtest.api.shown import Replay, Why
    from epymarl_fairtest.api.use import compare, load, repair, resume, test

__all__ = ["Comparison", "Repaired", "Replay", "Result", "Why", "compare", "load", "repair", "resume", "test"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from epymarl_fairtest.api import shown, use

    return getattr(shown if hasattr(shown, name) else use, name)
