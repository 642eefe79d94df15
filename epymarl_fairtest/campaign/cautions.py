"""What a run's numbers mean and do not mean, in sentences that terminal and page share. Knows the summary alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.numbers import amount, estimate, listed, percent
from epymarl_fairtest.core.worst_off import NATURAL

MANY = 0.05  # share of the random executions from which on it is worth a sentence
MOST = 0.5
FEW = 6  # agents that are named one by one
Summary = Mapping[str, Any]


def cautions(summary: Summary) -> list[str]:
    """Everything that keeps the failures from meaning what they seem to mean; nothing where nothing does."""
    sentences = (not_learned(summary), no_one_team(summary), most_are_unfair(summary), many_undefined(summary))
    return [sentence for sentence in sentences if sentence]


def not_learned(summary: Summary) -> str:
    """Is the team too weak for its unfairness to mean anything?"""
    competence = summary.get("competence") or {}
    random = competence.get("random_team")
    if random and not random["beaten"]:
        return (
            f"This team has not learned its task: from the same {random['starts']} starts it received more than a team"
            f" that acts at random in {random['better']} and less in {random['worse']}. Its unfair episodes say nothing"
            " about how a trained team shares."
        )
    least = competence.get("least_return")
    if least is not None and competence["return"] < least:
        return (
            f"This team has not learned its task well: it receives {competence['return']:.2f} of all there is (1), a"
            f" competent team at least {least:.2f}. Its unfair episodes may only show that."
        )
    return ""


def no_one_team(summary: Summary) -> str:
    """Are rewards compared that cannot be?"""
    mixed, sides = (summary.get("competence") or {}).get("opposite_signs") or 0.0, summary.get("sides") or {}
    opponents = any("adversary" in side for side in sides)
    if mixed < MANY and not opponents:
        return ""
    facts = (
        [f"in {percent(mixed)} of the random executions some agents end above zero and others below"] if mixed else []
    )
    if sides:
        facts.append("the environment names its agents " + listed([_side(*side) for side in sides.items()]))
    teams = [list(members) for members in sides.values() if len(members) > 1]
    example = " or ".join(f"agents={team}" for team in teams) or "agents=[1, 2]"
    return (
        f"{INDICES[summary['index']].label} does not compare opponents, nor rewards of opposite signs:"
        f" {listed(facts)}. Judge those alone that form one team: {example}."
    )


def _side(name: str, members: Sequence[int]) -> str:
    return f"{name} ({', '.join(map(str, members))})"


def most_are_unfair(summary: Summary) -> str:
    """Is the threshold one that most episodes miss?"""
    rate, chance = (summary.get("natural_rate") or {}).get("rate"), summary.get("unfair_by_chance")
    if rate is None or rate <= MOST:
        return ""
    sentence = f"The threshold {summary['theta']:.3g} calls most random executions unfair ({percent(rate)})."
    if chance is not None:
        sentence += f" Of rewards divided at random among so many agents it would call {percent(chance)} unfair."
    return f"{sentence} theta=auto takes a threshold from the team's own random executions."


def many_undefined(summary: Summary) -> str:
    undefined = (summary.get("competence") or {}).get("undefined") or 0.0
    if undefined < MANY:
        return ""
    return (
        f"In {percent(undefined)} of the random executions no agent received anything: these are neither fair nor"
        " unfair."
    )


# --- who comes off badly ------------------------------------------------------------------------------


def worst_off_sentence(worst_off: Mapping[str, Any]) -> str:
    """Who is shown to be worse off; `worst_off` is the summary's."""
    votes, named = worst_off["votes"], worst_off["agent"]
    if not votes:
        return "Not known: no failure begins at a start that nobody chose."
    unit = "natural failures" if worst_off["unit"] == NATURAL else "starts with failures"
    if votes == 1:
        unit = unit.replace("failures", "failure").replace("starts with failure", "start with a failure")
    if named is not None:
        one = next(one for one in worst_off["least"] if one["agent"] == named)
        share, low, high = estimate(one["share"], one["low"], one["high"])
        return (
            f"Agent {named} is systematically worse off: it receives least in {one['count']} of {votes} {unit}"
            f" ({share}, 95% interval {low} to {high})."
        )
    first, *others = worst_off["least"]
    if len(others) >= FEW:
        most = max(worst_off["least"], key=lambda one: one["count"])
        return (
            f"No agent is shown to be systematically worse off: of {votes:,} {unit}, agent {most['agent']} receives"
            f" least in the most, {most['count']:,}."
        )
    counts = [f"agent {first['agent']} receives least in {first['count']}"]
    counts += [f"agent {one['agent']} in {one['count']}" for one in others]
    return f"No agent is shown to be systematically worse off: of {votes} {unit}, {listed(counts)}."


# --- the terminal -------------------------------------------------------------------------------------


def competence_rows(summary: Summary) -> list[tuple[str, str]]:
    """Rows of the table that a user sees last."""
    rows: list[tuple[str, str]] = []
    competence = summary.get("competence")
    if competence:
        random, text = competence["random_team"], f"team {amount(competence['return'])}"
        if random:
            text += f", a random team {amount(random['return'])} from the same {random['starts']} starts"
        rows.append(("return", text))
        rows.append(("  per agent", _per_agent(summary["agents"], competence["received"])))
        if random:
            rows.append(("  random team", _per_agent(summary["agents"], random["received"])))
    if summary.get("unfair_by_chance") is not None:
        rows.append(
            ("by chance", f"rewards divided at random would be unfair in {percent(summary['unfair_by_chance'])}")
        )
    if summary.get("worst_off"):
        rows.append(("worst off", worst_off_sentence(summary["worst_off"])))
    return rows + [("take care", sentence) for sentence in cautions(summary)]


def _per_agent(agents: Sequence[int], received: Sequence[float]) -> str:
    if len(agents) > FEW:
        (least, worst), *_, (most, best) = sorted(zip(received, agents, strict=True))
        return f"from {amount(least)} (agent {worst}) to {amount(most)} (agent {best})"
    return ", ".join(f"agent {agent} {amount(value)}" for agent, value in zip(agents, received, strict=True))
