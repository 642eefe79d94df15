"""FairTest: does a trained MARL team share its rewards fairly?

    import epymarl_fairtest as fairtest
    result = fairtest.test("policies/mpe-qmix", budget=1000)

Importing the package registers the environments that pay a fairness allocation, so that
`env_args.key="epymarl_fairtest:mpe-tag-v0"` works wherever gymnasium is used. Hosts' workers import it for that alone:
the Python interface (docs/python.md) is loaded when it is first used.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.version import __version__
from epymarl_fairtest.tasks import register_environments

if TYPE_CHECKING:
    from epymarl_fairtest.api.use import Comparison, Repaired, Replay, Result, Why, compare, load, repair, resume, test


class _Package(ModuleType):
    """`fairtest.repair` is the function: importing the folder of the same name must not put itself in its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
register_environments()

__all__ = [
    "Comparison", "FairTestError", "Repaired", "Replay", "Result", "Why", "__version__", "compare", "load", "repair",
    "resume", "test",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in __all__:
        from epymarl_fairtest.api import use

        return getattr(use, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
