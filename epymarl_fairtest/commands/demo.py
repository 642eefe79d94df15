"""`fairtest demo`: test a trained team that ships with FairTest, then train a small one with FairTest on board.

The training runs on EPyMARL if a checkout is known, otherwise on PyMARLzoo+; what it prints goes to a file. A checkout
is never touched: its sources are copied, because EPyMARL writes its results beside them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError

ORDER = 10
TEAM = "lbf-qmix"  # competent, quick to test, and often unfair for a reason that can be shown
TEST: dict[str, Any] = {"seed": 1, "explain": 20}
# A small field with food that one agent can load, and no more steps than it takes to see that everything works.
TRAINING = shlex.split(
    "fairtest=True fairtest_args.preset=quick fairtest_args.budget=300 fairtest_args.explain=5"
    " env_args.field_size=(6,6) env_args.max_food_level=1 t_max=10000 epsilon_anneal_time=5000"
    " test_nepisode=20 test_interval=5000 log_interval=2500 runner_log_interval=2500 learner_log_interval=2500"
    " use_cuda=False seed=1"
)
STEPS = re.compile(r"t_env: (\d+) / (\d+)")
TAIL = 15  # lines of the training's output that are shown where it fails


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "demo",
        help="test a shipped team, then train one and test it",
        epilog="example: fairtest demo --out demo",
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for everything the demo writes")
    parser.set_defaults(func=demo)


def demo(args: Namespace) -> int:
    if (args.out / "manifest.json").exists():
        raise FairTestError(
            f"{str(args.out)!r} is the folder of a run, and a run is never overwritten. Choose another --out."
        )
    first = tested(args.out)
    print("\n2. A training with FairTest on board: the team is tested when training ends. It is a short one, so that")
    print("   FairTest will say that this team has not learned its task.", flush=True)
    second = trained(args.out.resolve())
    print(f"\nTwo pages to look at, in a browser:\n  {first.resolve()}\n  {second}")
    return 0


def tested(out: Path) -> Path:
    """A shipped team, tested and explained; its page. What an earlier demo found is shown again."""
    from epymarl_fairtest.api import use as api
    from epymarl_fairtest.core.shipped import shipped

    run = out / TEAM
    print(f"1. A trained team that ships with FairTest, {TEAM}: three agents gather food.", flush=True)
    if (run / "summary.json").is_file():
        result = api.load(run)
    elif (run / "manifest.json").is_file():
        result = api.resume(run)
    else:
        print("   The first run on a machine compiles its simulator: the table appears in a minute.", flush=True)
        result = api.test(shipped("policies") / TEAM, out=run, **TEST)
    print(result, flush=True)
    return run / "report" / "index.html"


def trained(out: Path) -> Path:
    """A small team, trained and tested in a host; the page of its run."""
    from epymarl_fairtest.api import use as api
    from epymarl_fairtest.core.checkout import known_checkout

    checkout = known_checkout()
    out.mkdir(parents=True, exist_ok=True)
    host, name = ["pymarlzooplus.main"], "PyMARLzoo+ (no EPyMARL checkout is known: set EPYMARL_HOME to use one)"
    if checkout is not None:
        host, name = ["src/main.py"], f"EPyMARL (a copy of {checkout})"
        shutil.copytree(checkout / "src", out / "src", dirs_exist_ok=True)
    command = [*host, "--config=qmix", "--env-config=fairtest_lbf", "with", *TRAINING]
    print(f"On {name}:\n  fairtest launch -- {shlex.join(command)}", flush=True)
    before = set(out.glob("**/summary.json"))
    quietly([sys.executable, "-m", "epymarl_fairtest", "launch", "--", *command], out)
    summaries = sorted(set(out.glob("**/summary.json")) - before)
    if not summaries:
        raise FairTestError(f"The demo's training left no FairTest run below {str(out)!r}.")
    print(api.load(summaries[0].parent), flush=True)
    return summaries[0].parent / "report" / "index.html"


def quietly(command: list[str], folder: Path) -> None:
    """Run it; its output goes to training.log, and only how far it is is said."""
    log, said = folder / "training.log", 0
    print(f"Its output goes to {log}.", flush=True)
    with (
        log.open("w") as file,
        subprocess.Popen(
            command, cwd=folder, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as training,
    ):
        for line in training.stdout or ():
            file.write(line)
            steps = STEPS.search(line)
            if steps and int(steps[1]) > said:
                said = int(steps[1])
                print(f"  {said:,} of {int(steps[2]):,} steps", flush=True)
    if training.returncode:
        last = "".join(log.read_text().splitlines(keepends=True)[-TAIL:])
        raise FairTestError(f"The demo's training ended with exit code {training.returncode}:\n{last}")
