"""`fairtest_args.repair`: when the test is over, `fairtest repair` of the run, in a process of its own."""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.host.hosts import Epymarl, Host

ANSWERS = (0, 1, 3)  # repaired, not repaired, levelled down


def options_of(asked: bool | str) -> list[str]:
    """The words that were given for `fairtest repair`; refused before training if they are none."""
    if isinstance(asked, bool):
        return []
    try:
        words = shlex.split(asked)
    except ValueError as error:
        raise FairTestError(f"fairtest_args.repair={asked!r} cannot be read as options: {error}.") from error
    if not words or not words[0].startswith("--") or {"--out", "--policy"} & {word.partition("=")[0] for word in words}:
        raise FairTestError(
            f"fairtest_args.repair={asked!r} is not allowed; it must be true, false, or options of `fairtest repair`"
            ' besides --policy and --out, e.g. "--steps 100000 --seeds 1".'
        )
    return words


def repair_run(host: Host, run: Path, asked: bool | str, say: Callable[[str], None]) -> None:
    """Repair the team of a finished run. Training and test are over: nothing that goes wrong here may end them."""
    out = run.with_name(f"{run.name}-repaired")
    words = ["repair", str(run), "--out", str(out), *options_of(asked)]
    say(f"FairTest begins to repair the team: fairtest {shlex.join(words)}")
    home = {}
    if isinstance(host, Epymarl):  # the same checkout, whether it is registered or not
        home["EPYMARL_HOME"] = str(Path(importlib.import_module("runners").__file__ or "").resolve().parents[2])
    done = subprocess.run([sys.executable, "-m", "epymarl_fairtest", *words], env={**os.environ, **home})
    if done.returncode not in ANSWERS:
        say(f"FairTest could not repair the team (exit code {done.returncode}); the same command continues.")
