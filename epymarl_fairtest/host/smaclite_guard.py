"""EPyMARL without smaclite: every other environment works, and smaclite says what is missing.

EPyMARL imports smaclite whatever environment is chosen, but it is not on PyPI. An edited checkout takes
`SMACliteWrapper` from here when its own cannot be imported; `activate` does the same without an edit.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

MESSAGE = (
    "smaclite is missing, so smaclite environments cannot be made. Install it with "
    "`pip install git+https://github.com/uoe-agents/smaclite.git`, or choose another --env-config."
)


class SMACliteWrapper:
    """Stands where EPyMARL's wrapper would; making an environment is the first moment to complain."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            import smaclite  # noqa: F401  (an installed but broken one tells its own reason)
        except ImportError as error:
            raise ImportError(f"{MESSAGE} ({error})") from error
        raise ImportError(MESSAGE)


class _Stub(ModuleType):
    """`import smaclite` succeeds; using anything of it does not."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspect and sacred ask every module for __file__ and the like
            raise AttributeError(name)
        raise ImportError(MESSAGE)


def is_missing() -> bool:
    """Is there no real smaclite? (Also when `activate` has put the stub in its place.)"""
    module = sys.modules.get("smaclite")
    if module is not None:
        return isinstance(module, _Stub)
    return find_spec("smaclite") is None


def activate() -> bool:
    """Let an unedited checkout import smaclite when there is none; True if the stand-ins are in place."""
    if not is_missing():
        return False
    if "smaclite" not in sys.modules:
        stub = _Stub("smaclite", MESSAGE)
        stub.__spec__ = ModuleSpec("smaclite", None)
        sys.modules["smaclite"] = stub
        # With the stub alone, EPyMARL's own wrapper would end in gymnasium's NamespaceNotFound.
        wrapper = ModuleType("envs.smaclite_wrapper", MESSAGE)
        wrapper.__spec__ = ModuleSpec("envs.smaclite_wrapper", None)
        wrapper.SMACliteWrapper = SMACliteWrapper  # type: ignore[attr-defined]
        sys.modules.setdefault("envs.smaclite_wrapper", wrapper)
    return True
