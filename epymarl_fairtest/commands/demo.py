"""`fairtest demo`: train a small QMIX team on level-based foraging and test it, wherever FairTest runs.

On EPyMARL if a checkout is known, otherwise on PyMARLzoo+. A checkout is never touched: its sources are copied,
because EPyMARL writes its results beside them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError

ORDER = 10
# A small field with food that one agent can load: a team that learns something in a few minutes.
TRAINING = shlex.split(
    "fairtest=True fairtest_args.preset=quick env_args.field_size=(6,6) env_args.max_food_level=1 t_max=40000"
    " epsilon_anneal_time=20000 test_nepisode=20 test_interval=10000 log_interval=10000 runner_log_interval=10000"
    " learner_log_interval=10000 use_cuda=False seed=1"
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="train a small team and test it (some minutes)",
        epilog="example: fairtest demo --out demo",
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for everything the demo writes")
    parser.set_defaults(func=demo)


def demo(args: Namespace) -> int:
    from epymarl_fairtest.core.checkout import known_checkout

    out = args.out.resolve()
    checkout = known_checkout()
    if (out / "manifest.json").exists():
        raise FairTestError(
            f"{str(args.out)!r} is the folder of a run, and a run is never overwritten. Choose another --out."
        )
    out.mkdir(parents=True, exist_ok=True)
    if checkout is not None:
        print(f"FairTest demo on EPyMARL (a copy of {checkout})", flush=True)
        shutil.copytree(checkout / "src", out / "src", dirs_exist_ok=True)
        host = ["src/main.py"]
    else:
        print("FairTest demo on PyMARLzoo+ (no EPyMARL checkout is known: set EPYMARL_HOME to use one)", flush=True)
        host = ["pymarlzooplus.main"]
    command = [*host, "--config=qmix", "--env-config=fairtest_lbf", "with", *TRAINING]
    print("  fairtest launch -- " + shlex.join(command), flush=True)
    before = set(out.glob("**/summary.json"))
    finished = subprocess.run(
        [sys.executable, "-m", "epymarl_fairtest", "launch", "--", *command], cwd=out, env=dict(os.environ)
    )
    if finished.returncode:
        raise FairTestError(f"The demo's training ended with exit code {finished.returncode}; see its output above.")
    summaries = sorted(set(out.glob("**/summary.json")) - before)
    if not summaries:
        raise FairTestError(f"The demo's training left no FairTest run below {str(out)!r}.")
    print(f"Everything about this run is in {summaries[0].parent}; begin with report/index.html in it.")
    return 0
