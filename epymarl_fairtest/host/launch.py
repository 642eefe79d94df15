"""A host's own command with FairTest attached, no file edited."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from epymarl_fairtest.core.checkout import is_checkout
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.host import mpe2_bridge, smaclite_guard
from epymarl_fairtest.host.attach import activate, was_reached
from epymarl_fairtest.host.suited import require_suited

ZOO = "pymarlzooplus.main"
EXAMPLE = (
    "example: fairtest launch -- src/main.py --config=qmix --env-config=fairtest_lbf with fairtest=True t_max=20000"
)


def launch(command: Sequence[str]) -> int:
    words = list(command[1:] if command[:1] == ["--"] else command)
    if not words:
        raise FairTestError(f"fairtest launch needs the host's command after --; {EXAMPLE}")
    program, arguments = words[0], expand_env_config(words[1:])
    if program in ("python", "python3"):
        raise FairTestError(f"Leave {program!r} out: fairtest launch -- {' '.join(words[1:3])} …")
    if program != ZOO and not Path(program).is_file():
        raise FairTestError(
            f"There is no script {program!r} in {os.getcwd()!r}. Give EPyMARL's src/main.py (from inside the"
            f" checkout) or {ZOO}; {EXAMPLE}"
        )
    script = Path(program).resolve()
    if program != ZOO and is_checkout(script.parent.parent):
        require_suited(script.parent.parent)
    smaclite_guard.activate()
    mpe2_bridge.activate()
    activate()
    if program == ZOO:
        return _launch_zoo(arguments)
    sys.argv = [program, *arguments]
    sys.path.insert(0, str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
    if not was_reached():
        raise FairTestError(
            f"{program!r} ended without handing its command line to sacred, so FairTest was never asked and tested"
            " nothing. FairTest can be attached to hosts that start with sacred's run_commandline: EPyMARL, PyMARLzoo+."
        )
    return 0


def _launch_zoo(arguments: list[str]) -> int:
    try:
        from pymarlzooplus import main
    except ImportError as error:
        raise FairTestError(
            f"PyMARLzoo+ cannot be imported ({error}). Install it without its heavy dependencies:"
            " pip install 'epymarl-fairtest[pymarlzoo]' && pip install --no-deps pymarlzooplus==1.1.0"
        ) from error
    sys.argv = [ZOO, *arguments]
    main.get_caller_path = os.getcwd  # otherwise the results lie beside the fairtest command itself
    main.pymarlzooplus(list(sys.argv))
    return 0


def expand_env_config(arguments: Sequence[str]) -> list[str]:
    """`--env-config=fairtest_pp` on a host that has no such file: gymma plus what our file says.

    The values go in front of the user's own, which therefore win.
    """
    option = "--env-config="
    chosen = [a for a in arguments if a.startswith(option + "fairtest_")]
    if not chosen:
        return list(arguments)
    name = chosen[0].removeprefix(option)
    path = shipped("config") / "envs" / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.yaml")))
        raise FairTestError(f"{option}{name} is not one of FairTest's environments: {known}.")
    values = yaml.safe_load(path.read_text())
    updates = [f"{key}={value}" for key, value in _dotted(values) if key != "env" and value is not None]
    rest = [option + "gymma" if a == chosen[0] else a for a in arguments]
    at = rest.index("with") + 1 if "with" in rest else len(rest)
    return [*rest[:at], *([] if "with" in rest else ["with"]), *updates, *rest[at:]]


def _dotted(values: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            pairs += _dotted(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", value))
    return pairs
