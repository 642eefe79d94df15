"""`fairtest predictor`: how well fairness can be predicted for one team, with and without fairness features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from epymarl_fairtest import rng
from epymarl_fairtest.baselines.random import random_tests
from epymarl_fairtest.config import Settings
from epymarl_fairtest.errors import FairTestError
from epymarl_fairtest.fairness import INDICES
from epymarl_fairtest.predictor.forest import cross_validated_auc, fit_predictor
from epymarl_fairtest.predictor.traces import Traces, traces_of, traces_of_pool
from epymarl_fairtest.run import Subject, given_theta, make_engine
from epymarl_fairtest.search.fitness import decision_certainty, scaled_temperature


@dataclass(frozen=True)
class PredictorReport:
    task: str
    episodes: int
    unfair: int
    theta: float
    d: float
    joint_states: int
    oob_abstract: float
    oob_full: float
    cv_abstract: list[float]  # per fold
    cv_full: list[float]
    unfair_by_uncertainty: list[float]  # share of unfair executions in each fifth by f3, most uncertain first

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.episodes} labelled episodes of {self.task}, {self.unfair} unfair (threshold {self.theta:g})",
            f"{self.joint_states} joint abstract states at d = {self.d:.4g}",
            f"{'AUC-ROC':<28}{'out of bag':>12}{'5-fold':>10}{'std':>8}",
        ]
        for name, oob, folds in (
            ("abstract states alone", self.oob_abstract, self.cv_abstract),
            ("with fairness features", self.oob_full, self.cv_full),
        ):
            lines.append(f"{name:<28}{oob:>12.3f}{np.mean(folds):>10.3f}{np.std(folds):>8.3f}")
        fifths = "  ".join(f"{share:.1%}" for share in self.unfair_by_uncertainty)
        lines.append(f"unfair among the executions, most uncertain fifth (lowest f3) first:  {fifths}")
        return "\n".join(lines)


def predictor_report(
    subject: Subject, settings: Settings, episodes: int, warn: Callable[[str], None], more: str = "--episodes"
) -> PredictorReport:
    """Train and cross-validate on the team's training pool and random executions; `more` names the option for these."""
    seed = settings.seed or 0
    if settings.theta == "auto":
        raise FairTestError("theta=auto is for runs; find the number with fairtest calibrate and give it here.")
    theta = given_theta(settings, subject.task)
    tests = random_tests(episodes, subject.task.state_size, rng.named(seed, "fairtest", "predictor"))
    executed = traces_of(make_engine(subject, settings, warn).execute(tests))
    traces = Traces.concatenate([*([traces_of_pool(subject.pool)] if subject.pool else []), executed])
    fair = ~(INDICES[settings.index](traces.received) <= theta)
    unfair = int((~fair).sum())
    if min(unfair, len(fair) - unfair) < 5:
        raise FairTestError(
            f"Of {len(fair)} labelled episodes {unfair} are unfair; five of each kind are needed to cross-validate."
            f" Execute more than {episodes} ({more}), or choose another threshold (--set theta=…)."
        )
    predictor = fit_predictor(traces, fair, buckets=settings.buckets, seed=seed, d=settings.d, workers=settings.threads)
    by_f3 = np.argsort(decision_certainty(executed, scaled_temperature(executed)), kind="stable")
    executed_unfair = INDICES[settings.index](executed.received) <= theta
    assert predictor.auc_abstract is not None
    assert predictor.auc_full is not None
    return PredictorReport(
        task=subject.task.name,
        episodes=len(traces),
        unfair=unfair,
        theta=theta,
        d=predictor.abstraction.d,
        joint_states=len(predictor.abstraction),
        oob_abstract=predictor.auc_abstract,
        oob_full=predictor.auc_full,
        cv_abstract=cross_validated_auc(traces, fair, predictor, full=False, seed=seed),
        cv_full=cross_validated_auc(traces, fair, predictor, full=True, seed=seed),
        unfair_by_uncertainty=[float(executed_unfair[fifth].mean()) for fifth in np.array_split(by_f3, 5)],
    )
