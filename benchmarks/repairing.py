"""One arm of a repair with another recipe: natural rate, return and worst-off agent as training goes on.

    python -m benchmarks.repairing --policy policies/lbf-qmix --weight 1 [--steps 100000] [--seed 0] [--share 0.3]
        [UPDATES=4 SLOWING=1 RELEARNED=40 BATCH=32] [lr=0.0005 hidden_dim=256 …]

Names in capitals are those of host/trainer.py, the others settings of the learner, as `fairtest repair --learner` takes
them. A weight of 0 is the control.
Trials while building, from the same starts each time, not verdicts: `fairtest repair` judges.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from epymarl_fairtest.api.repairing import usual_return
from epymarl_fairtest.curve.marks import loss_of
from epymarl_fairtest.curve.player import Player, curve_tests
from epymarl_fairtest.curve.point import Point, curve_judge, point_of
from epymarl_fairtest.host import trainer
from epymarl_fairtest.repair.contract import Lesson
from epymarl_fairtest.repair.search import Search, searched, starts_of
from epymarl_fairtest.repair.welfare import WELFARES, Shaping
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.saved import saved_team


class Watch:
    """Plays the same executions with the team as it is, and prints how it compares with the team before."""

    def __init__(self, policy: Path, settings: Any, executions: int) -> None:
        team = saved_team(policy, "env")
        self.judge = curve_judge(settings, team.task)
        self.player = Player(team, settings, self.judge, print)
        self.tests = curve_tests(team, executions, 0, "trial")
        self.spent = 0.0  # CPU seconds of looking
        self.before = self.look(team.policy)

    def look(self, policy: Any) -> Point:
        return point_of(0, self.player.play(policy, self.tests))

    def show(self, steps: int, seconds: float, policy: Any) -> None:
        began = time.process_time()
        now, then = self.look(policy), self.before
        gained = (f"{-loss_of(now, was):+.1%}" for now, was in (
            (now.team_return, then.team_return), (now.worst_off, then.worst_off), (now.best_off, then.best_off)
        ))  # fmt: skip
        words = "return {}, worst-off {}, best-off {}".format(*gained)
        print(f"{steps:>8,} steps {seconds - self.spent:6.1f} CPU s  unfair {now.unfair / now.executions:.2%}  {words}")
        sys.stdout.flush()
        self.spent += time.process_time() - began


def watched(watch: Watch, every: int) -> type[trainer.Learning]:
    """The trainer's Learning, looked at on the way. The steps are counted from when the agents begin to change."""

    class Watched(trainer.Learning):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.updates, self.shown, self.first, self.began = 0, 0, 0, time.process_time()

        def update(self, count: int) -> None:
            super().update(count)
            self.updates += count
            if self.updates <= trainer.RELEARNED * trainer.UPDATES:
                self.first = self.steps
            elif (self.steps - self.first) // every > self.shown:
                self.shown += 1
                watch.show(self.steps - self.first, time.process_time() - self.began, self.policy())

    return Watched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--welfare", choices=tuple(WELFARES), default="gini")
    parser.add_argument("--weight", type=float, required=True)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.3)
    parser.add_argument("--executions", type=int, default=4_000)
    parser.add_argument("changes", nargs="*", metavar="NAME=VALUE")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    changes = {name: yaml.safe_load(value) for name, value in (text.split("=", 1) for text in given.changes)}
    for name in [name for name in changes if name.isupper()]:
        setattr(trainer, name, changes.pop(name))
    folder = Path(tempfile.mkdtemp())
    try:
        train(given, folder, changes)
    finally:
        shutil.rmtree(folder)


def train(given: argparse.Namespace, folder: Path, changes: dict[str, Any]) -> None:
    settings = replace(configure({}), progress=False, seed=0)
    searched(Search("before", folder / "search", given.policy, settings, folder))
    starts = starts_of(folder / "search" / "failures.npz", saved_team(given.policy, "env").task.restorable)
    watch = Watch(given.policy, settings, given.executions)
    shaping = None
    if given.weight:
        scale = usual_return(saved_team(given.policy, "env"), settings, watch.judge, print)
        shaping = Shaping(given.welfare, given.weight, settings.index, watch.judge.theta, settings.agents, scale)
    print(f"{'before':>27}  unfair {watch.before.unfair / watch.before.executions:.2%}")
    trainer.Learning = watched(watch, given.every)  # type: ignore[misc]
    watch.spent = 0.0
    lesson = Lesson(given.policy, given.steps, given.seed, shaping, starts, given.share)
    trainer.HostTrainer(learner=changes).train(lesson, folder / "out")


if __name__ == "__main__":
    main()
