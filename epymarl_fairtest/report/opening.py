"""The first screen of a page: how often, who, why and what now. The run's other numbers come further down.

Plain data and words; knows no HTML.
"""

from __future__ import annotations

import shlex
from typing import Any

from epymarl_fairtest.campaign.cautions import worst_off_sentence
from epymarl_fairtest.campaign.coverage import ALL
from epymarl_fairtest.campaign.steps.explain.words import MEANING, first_sentence
from epymarl_fairtest.core.numbers import amount, percent
from epymarl_fairtest.core.statistics import Rate
from epymarl_fairtest.report import wording
from epymarl_fairtest.report.view import View
from epymarl_fairtest.report.wording import number

Data = dict[str, Any]


def answers(view: View) -> list[Data]:
    """What a researcher asks first, each with a short answer, a sentence, and where there is more."""
    return [how_often(view), who(view), why(view)]


def how_often(view: View) -> Data:
    return rate_card(view.rate) | {"question": "How often?", "more": "index"}


def who(view: View) -> Data:
    worst = view.summary.get("worst_off")
    named = worst and worst["agent"]
    short = "unknown" if not worst else f"agent\u00a0{named}" if named is not None else "nobody in particular"
    sentence = worst_off_sentence(worst) if worst else "This run does not tell."
    return card("Who comes off badly", short, sentence) | {"question": "Who?", "more": "who"}


def why(view: View) -> Data:
    explanation = view.record.explanation
    if not explanation or not explanation["explained"]:
        return card("Why", "not explained", "fairtest explain looks into it.") | {"question": "Why?", "more": "why"}
    cause, count = max(explanation["causes"].items(), key=lambda item: item[1])
    short = f"{MEANING[cause]} in {count} of {explanation['explained']}"
    if list(explanation["causes"].values()).count(count) > 1:
        short = "different causes, none the commonest"
    return card("Why", short, first_sentence(explanation)) | {"question": "Why?", "more": "why"}


def commands(view: View) -> list[Data]:
    """What now: commands to copy. Failures are looked at, become tests, and are compared with another team's."""
    run = shlex.quote(str(view.record.path))
    compare = ("Is another team fairer?", f"fairtest compare {run} OTHER_RUN")
    if not view.table["rows"]:
        return [_command(*compare)]
    worst = view.table["id"][0]
    return [
        _command("Watch the most unfair failure", f"fairtest replay {run} {worst} --gif"),
        _command("Ask why it happened", f"fairtest explain {run} {worst}"),
        _command("Keep failures as tests", f"fairtest export {run} --pytest test_fairness.py"),
        _command("Train the team fairer", f"fairtest repair {run} --out repaired"),
        _command(*compare),
    ]


def _command(label: str, text: str) -> Data:
    return {"label": label, "text": text}


# --- the numbers further down -------------------------------------------------------------------------


def cards(view: View) -> list[Data]:
    """What was found, and what it cost."""
    summary = view.record.summary
    failures, judged = int(summary["failures"]), int(summary.get("evaluated", 0))
    distance = view.record.manifest.get("distinct_distance")
    among = f"of {number(judged)} judged episodes, most of them chosen by the search: no rate"
    if not view.searched:
        among = f"of {number(judged)} random executions"
    where = f"on {view.index_name}"
    if view.quantile is not None:
        where += f", {wording.quantile_words(view)}"
    others = (
        ("Different failures", number(summary["distinct_failures"]),
         _how_different(distance, summary.get("distinct_failures_wide"))),
        ("Starts", number(wording.starts(summary)), "from which failures descend"),
        ("Unfair executions", number(failures), among if judged else "no episode was judged"),
        ("Coverage", percent(float(summary["coverage"])),
         f"of the position grid of {summary.get('coverage_of') or ALL}, by failures"),
        ("Threshold θ", wording.threshold(view.theta), where),
        ("Budget", number(summary["charged_strict"]),
         f"episodes, all that was executed; {number(summary['charged_paper'])} as the paper counts"),
    )  # fmt: skip
    return [
        *(card(*one) for one in others[:3]),
        *return_card(view),
        *(card(*one) for one in others[3:]),
    ]


def return_card(view: View) -> list[Data]:
    """What the team received, where it is on record."""
    competence = view.summary.get("competence")
    if not competence:
        return []
    random, note = competence["random_team"], "of the team, in random executions"
    if random:
        note = f"a random team {amount(random['return'])}, from the same starts"
    return [card("Return", amount(competence["return"]), note)]


def card(name: str, value: str, note: str, *, main: bool = False, interval: Data | None = None) -> Data:
    return {"name": name, "value": value, "note": note, "main": main, "interval": interval}


def _how_different(distance: float | None, wide: int | None) -> str:
    text = "paths that differ" if distance is None else f"paths further than {distance:g} apart"
    return text if wide is None else f"{text}; {number(wide)} at three times the distance"


def rate_card(rate: Rate | None) -> Data:
    name = "Natural rate"
    if rate is None:
        return card(name, "unknown", "no random executions on record", main=True)
    value, low, high = wording.estimate(rate)
    note = f"95% interval {low} to {high}, {number(rate.executions)} random executions"
    return card(name, value if rate.count else f"at most {high}", note, main=True, interval=interval_of(rate))


def interval_of(rate: Rate, most: float | None = None) -> Data:
    """The rate on a line from 0 to a round number above its interval, or above `most`, in percent of the line."""
    high = rate.high if most is None else most
    end = next((e * 10.0**m for m in range(-6, 0) for e in (1, 2, 5) if e * 10.0**m >= 1.25 * high), 1.0)
    low, high, value = (100 * min(part / end, 1.0) for part in (rate.low, rate.high, rate.estimate))
    return {"end": percent(end), "left": f"{low:.2f}", "width": f"{high - low:.2f}", "value": f"{value:.2f}"}
