"""`fairtest predictor`: how well fairness can be predicted for one team, with and without fairness features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from epymarl_fairtest.campaign.calibration import given_theta
from epymarl_fairtest.core import rng
from epymarl_fairtest.core.episodes import random_tests
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.judged import Judge, of_agents
from epymarl_fairtest.core.scores import scaled_temperature
from epymarl_fairtest.engine.selection import make_engine
from epymarl_fairtest.predictor.forest import cross_validated_auc, fit_predictor
from epymarl_fairtest.predictor.traces import Traces, traces_of, traces_of_sample
from epymarl_fairtest.settings import Settings
from epymarl_fairtest.strategies import strategy_of
from epymarl_fairtest.strategies.fairtest.fitness import decision_certainty
from epymarl_fairtest.team.contract import Team


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
    team: Team, settings: Settings, episodes: int, warn: Callable[[str], None], more: str = "--episodes"
) -> PredictorReport:
    """Train and cross-validate on the team's sample and random executions; `more` names the option for these."""
    seed, options = settings.root_seed(), strategy_of(settings).chosen(settings)
    if settings.theta == "auto":
        raise FairTestError("theta=auto is for runs; find the number with fairtest calibrate and give it here.")
    theta = given_theta(settings, team.task)
    tests = random_tests(episodes, team.task.state_size, rng.named(seed, "fairtest", "predictor"))
    judge = Judge(INDICES[settings.index], theta, settings.agents)
    judged = judge(make_engine(team, settings, warn).execute(tests))
    executed, sample = traces_of(judged), team.sample
    if len(sample):
        sample = replace(sample, rewards=of_agents(sample.rewards, settings.agents))
    traces = Traces.concatenate([*([traces_of_sample(sample)] if len(sample) else []), executed])
    fair = ~judge.unfair(traces.received)
    unfair = int((~fair).sum())
    if min(unfair, len(fair) - unfair) < 5:
        raise FairTestError(
            f"Of {len(fair)} labelled episodes {unfair} are unfair; five of each kind are needed to cross-validate."
            f" Execute more than {episodes} ({more}), or choose another threshold (--set theta=…)."
        )
    predictor = fit_predictor(traces, fair, buckets=options.buckets, seed=seed, d=options.d, workers=settings.threads)
    temperature = scaled_temperature(executed.q, team.available)
    certainty = decision_certainty(executed, team.available, team.policy.reading, temperature)
    by_f3 = np.argsort(certainty, kind="stable")
    assert predictor.auc_abstract is not None
    assert predictor.auc_full is not None
    return PredictorReport(
        task=team.task.name,
        episodes=len(traces),
        unfair=unfair,
        theta=theta,
        d=predictor.abstraction.d,
        joint_states=len(predictor.abstraction),
        oob_abstract=predictor.auc_abstract,
        oob_full=predictor.auc_full,
        cv_abstract=cross_validated_auc(traces, fair, predictor, full=False, seed=seed),
        cv_full=cross_validated_auc(traces, fair, predictor, full=True, seed=seed),
        unfair_by_uncertainty=[float(judged.unfair[fifth].mean()) for fifth in np.array_split(by_f3, 5)],
    )
