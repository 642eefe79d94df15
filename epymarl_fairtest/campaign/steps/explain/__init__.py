"""Why a failure happened: the cause, the decision, the agent and the step, for one of each different failure.

A step after the search, under a purpose of its own. Everything is found by executing the failure again with something
changed, so nothing here depends on how the team decides. docs/explaining.md has the definitions.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.campaign.steps.contract import Aftermath, Outcome, Step, Steps
from epymarl_fairtest.campaign.steps.explain.abreast import abreast
from epymarl_fairtest.campaign.steps.explain.acting import own_policy
from epymarl_fairtest.campaign.steps.explain.answers import FORMAT, Answers, Entry, overview
from epymarl_fairtest.campaign.steps.explain.cases import Asking, Cases, Rows, remembered
from epymarl_fairtest.campaign.steps.explain.cause import HERE_ONLY, ONE, SEVERAL, Found, several_decisions
from epymarl_fairtest.campaign.steps.explain.choosing import different_failures
from epymarl_fairtest.campaign.steps.explain.commitment import commitment
from epymarl_fairtest.campaign.steps.explain.decisions import checked_decisions, every_decision
from epymarl_fairtest.campaign.steps.explain.limits import Limit
from epymarl_fairtest.campaign.steps.explain.onward import Onward
from epymarl_fairtest.campaign.steps.explain.probability import chance
from epymarl_fairtest.campaign.steps.explain.responsibility import responsibilities
from epymarl_fairtest.campaign.steps.explain.situations import features_of, situations, together
from epymarl_fairtest.campaign.steps.explain.smallest import smallest_examples
from epymarl_fairtest.campaign.steps.explain.what_if import arrays_of, drawn, what_if
from epymarl_fairtest.core.episodes import Episodes
from epymarl_fairtest.core.ledger import purpose

EXPLAIN = purpose("explain", "failures again with something changed, to explain them (not charged)")
TOGETHER = 256  # failures that are explained at once: enough to fill the engine's batches
EXAMPLES, EXAMPLES_WITH_MEMORY = 10, 2  # failures, of those that the page shows, whose smallest examples are looked for
ENOUGH = 4  # smallest examples, after which the second half of these failures is not looked at: the page draws no more
FILE, ARRAYS = "explain.json", "explain.npz"


def explain(context: Aftermath) -> Steps:
    """As many different failures as the setting `explain` says, or as are not too much work."""
    rows, limit = different_failures(context)
    found = yield from explanations(context, rows, limit)
    return found


def explanations(context: Aftermath, rows: Rows, limit: Limit | None = None, *, common: bool = True) -> Asking[Outcome]:
    """The failures at these rows, in this order, and unless that is not asked what they have in `common`."""
    if context.settings.explain == 0:
        return Outcome({"explain": None}, columns_of(rows, [], context.recorded.failure_count()))
    entries: list[Entry] = []
    memory = context.team.policy.hidden_size > 0
    most_examples = EXAMPLES_WITH_MEMORY if memory else EXAMPLES
    instead, curves, starts, small = [], [], [], []
    for part in np.split(rows, np.arange(TOGETHER, len(rows), TOGETHER)) if len(rows) else ():
        order = np.argsort(part)  # a folder gives failures in ascending order
        cases = Cases.of(context, context.recorded.failures(part[order]).take(np.argsort(order)))
        some = _some_examples(cases, most_examples - len(entries))
        found, (examples, episodes) = yield from abreast(answers(cases), some)
        answered = found.entries()
        for n, entry in enumerate(answered):
            entry["smallest"] = examples.get(n)
        entries += answered
        small.append(drawn(cases, examples, episodes))
        instead.append((yield from what_if(cases, answered)))
        curves.append(found.commitment.p_unfair)
        starts.append(features_of(context, cases.episodes, np.ones(len(cases), bool)))
    rules = (yield from situations(context, together(starts))) if entries and common else []
    limits = {**asdict(limit or Limit()), "memory": memory}
    document = {
        "format": FORMAT,
        "task": context.team.task.name,
        "theta": context.judge.theta,
        "engine": context.engine,
        "restored": context.team.task.restorable,
        **limits,
        **overview(entries),
        "situations": rules,
        "failures": entries,
    }
    return Outcome(
        summary={"explain": {**limits, **overview(entries), "situation": rules[0] if rules else None}},
        columns=columns_of(rows, entries, context.recorded.failure_count()),
        files={ARRAYS: arrays_of(entries, curves, instead, small)} if entries else {},
        documents={FILE: document},
    )


def _some_examples(cases: Cases, most: int) -> Asking[tuple[dict[int, Entry], list[Episodes]]]:
    """Smallest examples of some of the first cases, by case; and their episodes."""
    examples: dict[int, Entry] = {}
    episodes: list[Episodes] = []
    few, half = range(min(most, len(cases))), max(most // 2, ENOUGH)  # fewer cannot give enough
    for some in (few[:half], few[half:]):
        if len(examples) < ENOUGH:
            found, executed = yield from smallest_examples(cases, some)
            examples |= found
            episodes += executed
    return examples, episodes


def answers(cases: Cases) -> Asking[Answers]:
    """Every question about all cases together; those abreast that need no other's answer."""
    cases = yield from remembered(cases)
    onward = Onward.of(cases)
    likely, tried = yield from abreast(chance(cases, onward), every_decision(cases))
    found = tried.found(len(cases))
    (checked, shown), (several, plans), acting = yield from abreast(
        checked_decisions(cases, tried, onward),
        several_decisions(cases, np.flatnonzero(~found)),
        own_policy(cases, likely),
    )
    settled = yield from commitment(cases, onward)
    responsible = yield from responsibilities(cases, shown, checked, acting)
    clear = {one.case for one in shown}
    counts = tried.count(len(cases))
    what = [
        Found(ONE if n in clear else HERE_ONLY, int(counts[n]))
        if found[n]
        else Found(SEVERAL if several[n] else None, int(counts[n] + plans[n]))
        for n in range(len(cases))
    ]
    return Answers(cases, likely, what, shown, settled, responsible)


def columns_of(rows: Rows, entries: list[Entry], count: int) -> dict[str, NDArray[Any]]:
    """Of failures.csv: the cause and the step of the best decision, for those that were explained."""
    cause, step = np.full(count, "", "U6"), np.full(count, -1, np.int64)
    for row, entry in zip(rows.tolist(), entries, strict=True):
        cause[row] = entry["cause"]
        if entry["decisions"]:
            step[row] = entry["decisions"][0]["step"]
    return {"cause": cause, "decisive_step": step}


STEP = Step("explain", "explaining", EXPLAIN, explain, command="explain", order=4)
