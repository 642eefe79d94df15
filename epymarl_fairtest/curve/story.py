"""What a curve says: the key `curve` of summary.json, and its sentences. Plain data and words, no drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.numbers import as_given, estimate
from epymarl_fairtest.core.statistics import rate_of
from epymarl_fairtest.curve.marks import MAX_LOSS, best_return, fairest
from epymarl_fairtest.curve.series import FILE, Curve, read_curve
from epymarl_fairtest.curve.trend import NOT_SHOWN, trend_of
from epymarl_fairtest.team.places import team_places

Story = Mapping[str, Any]
NOTHING = "in no execution of any point did an agent receive anything"


def story_of(curve: Curve, max_loss: float = MAX_LOSS) -> dict[str, Any]:
    """The points as numbers, which of them matter, and the trend."""
    points = curve.points
    best, fair, trend = best_return(points), fairest(points, max_loss), trend_of(points)
    return {
        **{name: curve.asked[name] for name in ("index", "theta", "episodes")},
        "points": [point.numbers() for point in points],
        "final": points[-1].step if points else None,
        "best_return": None if best is None else best.step,
        "fairest": None if fair is None else fair.step,
        "max_loss": max_loss,
        "trend": None if trend is None else trend.as_dict(),
    }


def story_of_team(run: Path, origin: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of the training of the team that `run` tests; None where no curve lies beside the team, or none can be read."""
    file = next((place / FILE for place in team_places(run, origin) if (place / FILE).is_file()), None)
    try:
        return None if file is None else story_of(read_curve(file))
    except FairTestError:  # it says nothing of this run's tests, which are worth more
        return None


def at(story: Story, mark: str) -> dict[str, Any] | None:
    """The point that is marked so: final, best_return or fairest."""
    marked: dict[str, Any] | None = next((point for point in story["points"] if point["step"] == story[mark]), None)
    return marked


def trend_sentence(story: Story) -> str:
    """Whether fairness got better or worse with training."""
    trend = story["trend"]
    known = [point for point in story["points"] if point["rate"] is not None]
    if trend is None:
        why = "a trend needs two points" if known else NOTHING
        return f"Whether fairness changed with training is not known: {why}."
    half = len(known) // 2
    paid = ", of the executions in which anybody received anything," if any(p["undefined"] for p in known) else ""
    rates = (
        f"in the first half of the points {_unfair(known[:half])} were unfair{paid} and in the second half"
        f" {_unfair(known[half:])}"
    )
    votes = (
        f"{trend['worse']} of the {known[0]['executions']:,} starts are unfair more often in later teams,"
        f" {trend['better']} less often; exact sign test, p = {trend['p']:.2g}"
    )
    if trend["direction"] == NOT_SHOWN:
        return f"That fairness got better or worse with training is not shown: {rates} ({votes})."
    return f"Fairness got {trend['direction']} with training: {rates} ({votes})."


def _unfair(points: Sequence[Story]) -> str:
    """Share of these points' executions, as far as their index is defined: learning to achieve something does not
    make a team less fair by itself."""
    defined = sum(point["executions"] * (1 - point["undefined"]) for point in points)
    rate = rate_of(sum(point["unfair"] for point in points), round(defined))
    return estimate(rate.estimate, rate.low, rate.high)[0]


def _rate(point: Story) -> str:
    return estimate(point["rate"], point["low"], point["high"])[0]


def choice_sentence(story: Story) -> str:
    """What another checkpoint would give: a candidate, because the same executions chose it."""
    final, fair = at(story, "final"), at(story, "fairest")
    if final is None or fair is None:
        return ""
    near = f"within {as_given(story['max_loss'])} of the best return"
    if fair["step"] == final["step"]:
        return f"The final team is the fairest {near}."
    compared = "" if final["rate"] is None else f", the final team {_rate(final)}"
    return (
        f"The fairest team {near} is that of step {fair['step']:,}: {_rate(fair)} of its executions were unfair"
        f"{compared}. It was chosen by these executions; fairtest choose judges it on fresh ones."
    )
