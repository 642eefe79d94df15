"""Commands of `fairtest` in processes forked from one that has imported the libraries: most of a short command is that.

A forked process is one of its own in everything but this: it does not begin by reading torch and scikit-learn.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

LIBRARIES = (
    "torch", "torch._dynamo", "torch.utils.tensorboard", "sklearn.ensemble", "sklearn.metrics", "scipy.stats", "pandas",
    "matplotlib.pyplot", "PIL.Image", "numba", "moocore", "gymnasium", "pettingzoo", "mpe2", "lbforaging", "sacred",
    "yaml", "cloudpickle",
)  # fmt: skip
OURS = ("epymarl_fairtest.commands", "epymarl_fairtest.campaign.run", "epymarl_fairtest.host.plugin")


def start(
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    output: Path,
    *,
    largest_file: int | None = None,
) -> BaseProcess:
    """`fairtest WORDS` in that folder and environment; what it says goes to the file `output`.

    A file that would have more bytes than the largest is refused, as by a full disk.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*LIBRARIES, *OURS])
    process = context.Process(target=_command, args=(list(words), folder, dict(environment), output, largest_file))
    process.start()
    return process


def finished(words: Sequence[str], folder: Path, environment: Mapping[str, str], output: Path) -> tuple[int, str]:
    """The exit code of such a command, and what it said."""
    process = start(words, folder, environment, output)
    process.join(timeout=600)
    said = output.read_text(errors="replace")
    assert process.exitcode is not None, f"fairtest {words[0]} does not end:\n{said}"
    return process.exitcode, said


def _command(
    words: list[str], folder: Path, environment: dict[str, str], output: Path, largest_file: int | None
) -> None:
    multiprocessing.set_start_method("fork", force=True)  # as everywhere outside of here
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[1:1] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    said = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(said, stream)
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    hurry()
    from epymarl_fairtest.commands import main

    sys.argv = ["fairtest", *words]
    sys.exit(main(words))


def hurry() -> None:
    """PyMARLzoo+ without its pauses (ten seconds at the end of every run) and the plots for which it makes them."""
    sleep = time.sleep

    def awake(seconds: float) -> None:
        if not sys._getframe(1).f_globals["__name__"].startswith("pymarlzooplus."):
            sleep(seconds)

    time.sleep = awake
    plots: Any = ModuleType("pymarlzooplus.utils.plot_utils")
    plots.plot_single_experiment_results = lambda *results, **names: None
    sys.modules[plots.__name__] = plots
