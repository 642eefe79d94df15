"""What is said of each explained failure: the entries of explain.json, and what they add up to. Plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from epymarl_fairtest.campaign.steps.explain.arms import Decision
from epymarl_fairtest.campaign.steps.explain.cases import Cases
from epymarl_fairtest.campaign.steps.explain.cause import CAUSES, Found, causes
from epymarl_fairtest.campaign.steps.explain.commitment import Commitment
from epymarl_fairtest.campaign.steps.explain.probability import Chance
from epymarl_fairtest.campaign.steps.explain.responsibility import Responsibility

FORMAT = 1
Entry = dict[str, Any]


@dataclass(frozen=True)
class Answers:
    """What was found out about some cases."""

    cases: Cases
    chance: Chance
    found: Sequence[Found]
    decisions: Sequence[Decision]  # that are shown, the best of each case first
    commitment: Commitment
    responsible: dict[int, Responsibility]

    def entries(self) -> list[Entry]:
        """One per case, in their order."""
        p_unfair = [rate.estimate for rate in self.chance.p_unfair]
        words = causes(p_unfair, self.chance.greedy_unfair.tolist(), self.found)
        return [self._entry(case, cause) for case, cause in enumerate(words)]

    def _entry(self, case: int, cause: str) -> Entry:
        episodes, rate, found = self.cases.episodes, self.chance.p_unfair[case], self.found[case]
        shown = [one for one in self.decisions if one.case == case]
        curve = self.commitment.p_unfair[case]
        judge = self.cases.context.judge
        return {
            "id": int(episodes.id[case]),
            "cause": cause,
            "index": number(float(judge.index(self.cases.received[case : case + 1])[0])),
            "p_unfair": rate.estimate,
            "p_unfair_low": number(rate.low),
            "p_unfair_high": number(rate.high),
            "greedy_unfair": bool(self.chance.greedy_unfair[case]),
            "avoided_by": found.avoided_by,
            "deviations_tried": found.tried,
            "start_step": int(episodes.start_step[case]),
            "length": int(episodes.length[case]),
            "committed_at": int(self.commitment.committed_at[case]),
            "gap_opens_at": int(self.commitment.gap_opens_at[case]),
            "course": [[int(t), number(float(curve[t]))] for t in np.flatnonzero(~np.isnan(curve))],
            "worst_off": [self.cases.agents[n] + 1 for n in np.flatnonzero(_least(self.cases.received[case]))],
            "decisions": [self._decision(one) for one in shown],
            "responsibility": self._responsibility(case),
        }

    def _decision(self, one: Decision) -> Entry:
        task = self.cases.context.team.task
        return {
            "agent": one.agent + 1,
            "step": one.step,
            "action": task.action_name(one.action),
            "instead_of": task.action_name(one.instead_of),
            "action_number": one.action,
            "instead_of_number": one.instead_of,
            "slip": one.slip,
            "streams": one.streams,
            "p_unfair": one.p_unfair,
            "p_unfair_before": one.p_before,
            "worst_off_gain": number(one.worst_off_gain),
            "team_change": number(one.team_change),
            "scores": [number(float(score)) for score in self.cases.episodes.q[one.case, one.step, one.agent]],
        }

    def _responsibility(self, case: int) -> Entry | None:
        found = self.responsible.get(case)
        if found is None:
            return None
        return {
            "agent": None if found.agent is None else found.agent + 1,
            "values": [
                {
                    "agent": agent + 1,
                    "value": number(value),
                    "error": number(found.error[agent]),
                    "by": found.by[agent],
                }
                for agent, value in found.value.items()
            ],
        }


def _least(received: Any) -> Any:
    return received == received.min()


def number(value: float) -> float | None:
    """Six digits: what is behind them depends on nothing that anybody asked."""
    return None if np.isnan(value) else float(f"{value:.6g}")


def overview(entries: Sequence[Entry]) -> Entry:
    """What the entries add up to: the part of explain.json that the summary holds, too."""
    counts = Counter(entry["cause"] for entry in entries)
    named = Counter(
        entry["responsibility"]["agent"]
        for entry in entries
        if entry["responsibility"] and entry["responsibility"]["agent"] is not None
    )
    return {
        "explained": len(entries),
        "causes": {cause: counts[cause] for cause in CAUSES},
        "avoided_by": dict(sorted(Counter(entry["avoided_by"] for entry in entries if entry["avoided_by"]).items())),
        "with_decision": sum(bool(entry["decisions"]) for entry in entries),
        "committed_at_first": sum(entry["committed_at"] <= entry["start_step"] for entry in entries),
        "responsible": {str(agent): count for agent, count in sorted(named.items())},
    }
