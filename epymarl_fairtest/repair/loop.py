"""The loop of a repair: train every arm, choose by validation, search again, judge on starts that nobody used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.version import __version__
from epymarl_fairtest.curve.checkpoints import checkpoints_of
from epymarl_fairtest.curve.marks import loss_of
from epymarl_fairtest.curve.point import Played, point_of
from epymarl_fairtest.repair.arms import Arm, copy_arm, is_finished, measured, run_arm
from epymarl_fairtest.repair.contract import Lesson, Trainer
from epymarl_fairtest.repair.document import FORMAT
from epymarl_fairtest.repair.plan import BEFORE, CONTROL, FRESH, REPAIRED, REPEATED, VALIDATION, Plan, arm_name
from epymarl_fairtest.repair.regressions import regressions
from epymarl_fairtest.repair.search import COUNTED, Search, run_search
from epymarl_fairtest.repair.verdict import chosen, judge, overall, return_ends
from epymarl_fairtest.store.finished import read_summary
from epymarl_fairtest.team.checkpoint import load_record

Fan = Callable[[Callable[[Any], dict[str, Any]], Sequence[Any]], Iterator[tuple[Any, dict[str, Any]]]]
"""Runs jobs wherever they run, and gives them back with their results as they end."""


@dataclass
class Repair:
    plan: Plan
    trainer: Trainer
    fan: Fan
    finished: dict[str, dict[str, Any]] = field(default_factory=dict)  # by its name, what a job gave back
    stopped: list[dict[str, str]] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """Everything but what is finished already; the content of repair.json, without what the command adds."""
        plan = self.plan
        before = Arm("the team before", plan.out / BEFORE, plan.policy, None, None, plan.settings, plan.sets)
        arms = [arm for seed in plan.seeds for arm in self._arms(seed)]
        checkpoints = self._checkpoints()
        self._work([before, *arms, *checkpoints], run_arm)
        if before.name not in self.finished:
            raise FairTestError(f"The team cannot be executed: {self.stopped[-1]['why']}")
        was = measured(before.folder, VALIDATION)
        pairs = [pair for seed in plan.seeds if (pair := self._choose(seed, was)) is not None]
        if not pairs:
            raise FairTestError("No seed was trained to its end: " + "; ".join(one["why"] for one in self.stopped))
        searches = self._search([(seed, arm) for seed, _ in pairs for arm in (CONTROL, REPAIRED)])
        return self._document(pairs, searches, self._fairest(checkpoints, was))

    def _arms(self, seed: int) -> list[Arm]:
        plan = self.plan
        lessons = {CONTROL: Lesson(plan.policy, plan.steps, seed)}
        for shaping in plan.shapings:
            lessons[arm_name(shaping)] = Lesson(plan.policy, plan.steps, seed, shaping, plan.starts, plan.share)
        return [
            Arm(
                f"seed {seed} {name}",
                plan.folder(seed, name),
                plan.policy,
                lesson,
                self.trainer,
                plan.settings,
                plan.sets,
            )
            for name, lesson in lessons.items()
        ]

    def _checkpoints(self) -> list[Arm]:
        """The teams that this training left behind, the team itself aside; none where there are none."""
        try:
            found = checkpoints_of(self.plan.run, None, lambda message: None)
        except FairTestError:
            return []
        final = load_record(self.plan.policy).training_steps
        return [
            Arm(f"checkpoint {one.step}", self.plan.out / "checkpoints" / str(one.step), one.folder, None, None,
                self.plan.settings, self.plan.sets)
            for one in found if one.step != final and (one.folder / "policy.yaml").is_file()
        ]  # fmt: skip

    def _work(self, jobs: Sequence[Any], work: Callable[[Any], dict[str, Any]]) -> None:
        for job, result in self.fan(work, jobs):
            if "error" in result:
                self.stopped.append({"arm": str(job), "why": result["error"].strip().splitlines()[-1]})
            else:
                self.finished[str(job)] = result

    def _choose(self, seed: int, was: Played) -> tuple[int, int] | None:
        """The weight for this seed, by validation; None where the control or every weight was stopped."""
        control, *weighted = self._arms(seed)
        whole = [number for number, arm in enumerate(weighted) if is_finished(arm)]
        if not whole or not is_finished(control):
            return None
        points = [point_of(0, measured(weighted[number].folder, VALIDATION)) for number in whole]
        number = whole[chosen(point_of(0, was), points, self.plan.max_loss)]
        copy_arm(weighted[number].folder, self.plan.folder(seed, REPAIRED))
        return seed, number

    def _search(self, teams: Sequence[tuple[int, str]]) -> dict[str, dict[str, Any]]:
        plan, failures = self.plan, self.plan.run / "failures.npz"
        jobs = [
            Search(f"seed {seed} {arm}: search", plan.out / "search" / f"seed-{seed}-{arm}{self._weight_of(seed, arm)}",
                   plan.folder(seed, arm), plan.settings, failures)
            for seed, arm in teams
        ]  # fmt: skip
        self._work(jobs, run_search)
        return {f"{seed} {arm}": self.finished.get(str(job), {}) for (seed, arm), job in zip(teams, jobs, strict=True)}

    def _weight_of(self, seed: int, arm: str) -> str:
        """A search belongs to the weights that were searched: another choice of weight is another search."""
        from epymarl_fairtest.team.checkpoint import digest, load_weights

        return "" if arm == CONTROL else "-" + digest(load_weights(self.plan.folder(seed, arm) / "agent.th"))[:8]

    def _fairest(self, arms: Sequence[Arm], was: Played) -> dict[str, Any] | None:
        """The fairest checkpoint within the loss, by validation, judged on the fresh executions."""
        whole = [arm for arm in arms if is_finished(arm)]
        if not whole:
            return None
        points = [point_of(0, measured(arm.folder, VALIDATION)) for arm in whole]
        arm = whole[chosen(point_of(0, was), points, self.plan.max_loss)]
        entry = self._measured(arm.folder, arm.policy)
        return entry | {"step": int(arm.folder.name), "candidates": len(whole)}

    # --- the document ---

    def _measured(self, folder: Path, policy: Path) -> dict[str, Any]:
        point = point_of(0, measured(folder, FRESH))
        rate = point.rate
        return {
            "rate": rate.estimate if rate else None,
            "low": rate.low if rate else None,
            "high": rate.high if rate else None,
            "executions": point.executions,
            "return": point.team_return,
            "worst_off": point.worst_off,
            "best_off": point.best_off,
            "undefined": point.undefined_share,
            "policy": str(policy.relative_to(self.plan.out) if policy.is_relative_to(self.plan.out) else policy),
        }

    def _trained(self, seed: int, arm: str, result: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
        plan = self.plan
        was, now = measured(plan.out / BEFORE, FRESH), measured(plan.folder(seed, arm), FRESH)
        then, after = point_of(0, was), point_of(0, now)
        low, high = return_ends(now, was)
        return {
            "seed": seed,
            **self._measured(plan.folder(seed, arm), plan.folder(seed, arm)),
            "steps": result["steps"],
            "training_cpu_seconds": result["training_cpu_seconds"],
            "return_change": -loss_of(after.team_return, then.team_return),
            "return_change_low": low,
            "return_change_high": high,
            "worst_off_change": -loss_of(after.worst_off, then.worst_off),
            **self._regressions(seed, arm),
            "search": found.get("search"),
            "regression": found.get("regression"),
        }

    def _regressions(self, seed: int, arm: str) -> dict[str, Any]:
        """Starts that were fair before and are not now; of the repaired team beside its control."""
        plan = self.plan
        before = measured(plan.out / BEFORE, REPEATED)
        control = measured(plan.folder(seed, CONTROL), REPEATED)
        now = control if arm == CONTROL else measured(plan.folder(seed, arm), REPEATED)
        found = regressions(before, now, None if arm == CONTROL else control)
        numbers = {"formerly_fair": found.formerly_fair, "newly_unfair": found.share}
        if arm == CONTROL:
            return numbers
        return numbers | {"newly_unfair_beyond_control": found.beyond, "beyond_control_high": found.beyond_high}

    def _document(
        self,
        pairs: Sequence[tuple[int, int]],
        searches: Mapping[str, Mapping[str, Any]],
        fairest: dict[str, Any] | None,
    ) -> dict[str, Any]:
        plan = self.plan
        was = measured(plan.out / BEFORE, FRESH)
        control, repaired, notes = [], [], set()
        for seed, number in pairs:
            shaping = plan.shapings[number]
            names = {CONTROL: f"seed {seed} {CONTROL}", REPAIRED: f"seed {seed} {arm_name(shaping)}"}
            notes |= {note for name in names.values() for note in self.finished[name]["notes"]}
            control.append(self._trained(seed, CONTROL, self.finished[names[CONTROL]], searches[f"{seed} {CONTROL}"]))
            entry = self._trained(seed, REPAIRED, self.finished[names[REPAIRED]], searches[f"{seed} {REPAIRED}"])
            beside, now = (measured(plan.folder(seed, arm), FRESH) for arm in (CONTROL, REPAIRED))
            judgement = judge(was, beside, now, plan.max_loss)
            chosen_as = {"weight": shaping.weight, "verdict": judgement.verdict, "why": judgement.why}
            repaired.append(entry | chosen_as | {"seed_cpu_seconds": self._seconds(seed)})
        summary = read_summary(plan.run)
        before = self._measured(plan.out / BEFORE, plan.policy)
        return {
            "format": FORMAT,
            "verdict": overall([one["verdict"] for one in repaired]),
            "before": before | {"search": {name: summary.get(name) for name in COUNTED}},
            "control": control,
            "repaired": repaired,
            "checkpoint": fairest,
            "points": self._points(dict(pairs)),
            "stopped": self.stopped,
            "steps": plan.steps,
            "share": plan.share,
            "learner": dict(plan.learner),
            "max_loss": plan.max_loss,
            "theta": plan.settings.theta,
            "index": plan.settings.index,
            "budget": plan.settings.budget,
            "task": summary["task"],
            "algorithm": load_record(plan.policy).algorithm,
            "notes": sorted(notes),
            "fairtest": __version__,
        }

    def _seconds(self, seed: int) -> float:
        """Of training, all arms of a seed together."""
        results = (self.finished.get(str(arm), {}) for arm in self._arms(seed))
        return round(sum(float(result.get("training_cpu_seconds", 0)) for result in results), 1)

    def _points(self, pairs: Mapping[int, int]) -> list[dict[str, Any]]:
        """Every trained team, for the figure."""
        points = []
        for seed in self.plan.seeds:
            for number, arm in enumerate(self._arms(seed)):
                if not is_finished(arm):
                    continue
                weight = self.plan.shapings[number - 1].weight if number else None
                entry = {
                    "seed": seed,
                    "arm": arm.folder.name,
                    "weight": weight,
                    "chosen": pairs.get(seed) == number - 1,
                }
                points.append(entry | self._measured(arm.folder, arm.folder))
        return points
