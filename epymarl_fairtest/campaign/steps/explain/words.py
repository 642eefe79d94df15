"""What explain.json says, as sentences: for the terminal, the page and the command. Knows its keys and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from epymarl_fairtest.core.numbers import estimate, percent

Explanation = Mapping[str, Any]  # explain.json, or what the summary holds of it
Entry = Mapping[str, Any]  # of one failure
MEANING = {
    "noise": "bad luck of exploration",
    "policy": "better choices were found",
    "start": "no better choice was found",
}


def summary_rows(explanation: Explanation | None) -> list[tuple[str, str]]:
    """Three lines of the terminal's table."""
    if not explanation or not explanation["explained"]:
        return []
    parts = [f"{count} {cause} ({MEANING[cause]})" for cause, count in explanation["causes"].items() if count]
    decided, all_of_them = explanation["with_decision"], explanation["explained"]
    rows = [
        ("why", f"{failures(all_of_them)} explained{_fewer(explanation)}: {', '.join(parts)}"),
        ("  one decision", f"in {decided} of {all_of_them} one other decision alone would have been enough"),
    ]
    situation = explanation.get("situation")
    common = "no rule tells unfair executions apart twice as well as chance"
    if situation:
        often, interval = precision(situation)
        common = f"{situation['rule']}: {often} unfair{interval} instead of {percent(situation['base_rate'])}"
    return [*rows, ("  situation", common)]


def precision(situation: Mapping[str, Any]) -> tuple[str, str]:
    """How often an execution is unfair where the rule holds, and the interval of that: "50%" and " (41% to 59%)"."""
    if situation.get("precision_low") is None:  # a run of an earlier version
        return percent(situation["precision"]), ""
    names = ("precision", "precision_low", "precision_high")
    often, low, high = estimate(*(situation[name] for name in names))
    return often, f" ({low} to {high})"


def _fewer(explanation: Explanation) -> str:
    """That there would have been more to explain, were it not for the work."""
    held = explanation.get("work") and explanation["explained"] == explanation["held_to"]
    return f" (no more, for one takes {_times(explanation['work'])} times the usual work)" if held else ""


def _times(work: float) -> str:
    return f"{work:.0f}" if work >= 10 else f"{work:.1f}"


def notes(explanation: Explanation) -> list[str]:
    """What limits the explanations of this run."""
    text = []
    if explanation["engine"] != "twin":
        text.append("There is no compiled twin of this environment, so only a few failures were explained.")
    elif _fewer(explanation):
        why = "; with a memory a step takes ten times as long" if explanation["memory"] else ""
        examples = ", and smallest examples were looked for in two of them" if explanation["memory"] else ""
        text.append(
            f"A failure of this run takes {_times(explanation['work'])} times the work that the setting counts on{why}."
            f" So only {failures(explanation['explained'])} were explained{examples}; explain=all explains every"
            " different one."
        )
    if not explanation["restored"]:
        text.append(
            "States of this environment cannot be written back: every other course begins with the seed and repeats the"
            " recorded actions up to its change."
        )
    return text


def first_sentence(explanation: Explanation) -> str:
    """For the page's first screen."""
    decided, all_of_them = explanation["with_decision"], explanation["explained"]
    text = (
        f"{part_of(decided, all_of_them)} of the failures looked at could have been avoided by one other decision alone"
    )
    situations = explanation["situations"]
    return f"{text}; the commonest situation: {situations[0]['rule']}." if situations else f"{text}."


def part_of(count: int, total: int) -> str:
    """A share as one says it; the numbers where no simple one is near."""
    if not count:
        return "None"
    if count == total:
        return "All"
    near = {1 / 4: "A quarter", 1 / 3: "A third", 1 / 2: "Half", 2 / 3: "Two thirds", 3 / 4: "Three quarters"}
    for value, words in near.items():
        if abs(count / total - value) <= 0.03 and total >= 20:
            return f"{words} ({count} of {total})"
    return f"{count} of {total}"


def decision_sentence(one: Mapping[str, Any]) -> str:
    """step 7, agent 2: left instead of stay: unfair in 31% instead of 90%; worst-off +2.1, team −0.3%."""
    return (
        f"step {one['step']}, agent {one['agent']}: {one['action']} instead of {one['instead_of']}:"
        f" unfair in {percent(one['p_unfair'])} instead of {percent(one['p_unfair_before'])};"
        f" worst-off {signed(one['worst_off_gain'], '.2g')}, team {signed(100 * one['team_change'], '.1f')}%"
    )


def cause_sentence(entry: Entry) -> str:
    share, low, high = estimate(entry["p_unfair"], entry["p_unfair_low"], entry["p_unfair_high"])
    p = f"unfair in {share} of fresh executions from its start ({low} to {high})"
    greedy = "unfair" if entry["greedy_unfair"] else "fair"
    text = f"{entry['cause']}: {MEANING[entry['cause']]}; {p}, {greedy} without exploration"
    avoided = entry["avoided_by"]
    how = f"avoided by {avoided}" if avoided else "none was better"
    return f"{text}; {entry['deviations_tried']} deviations tried, {how}."


def settled_sentence(entry: Entry) -> str:
    """When it was settled, and when the gap opened."""
    when = f"settled from step {entry['committed_at']} on"
    if entry["committed_at"] <= entry["start_step"]:
        when = "settled from the first executed step on"
    elif entry["committed_at"] >= entry["length"]:
        when = "open until the end"
    return f"{when} (P(unfair) stays at or above 0.9); the gap opens at step {entry['gap_opens_at']}."


def responsible_sentence(entry: Entry) -> str:
    found = entry["responsibility"]
    if not found:
        return ""
    if found["agent"] is None:
        return "No single agent is responsible."
    named = next(one for one in found["values"] if one["agent"] == found["agent"])
    how = "its own decision" if named["by"] == "one decision" else "acting as the team's policy says"
    return f"Agent {found['agent']} could have prevented it: {how} lowers P(unfair) by {named['value']:.2f}."


def paragraphs(entry: Entry) -> list[str]:
    """All that is said of one failure, line by line."""
    lines = [f"Failure {entry['id']}, index {entry['index']:.3f}", f"  cause: {cause_sentence(entry)}"]
    lines += [f"  decision: {decision_sentence(one)}" for one in entry["decisions"]]
    lines += [f"  {one}" for one in (settled_sentence(entry), responsible_sentence(entry)) if one]
    return lines


def failures(count: int) -> str:
    return f"{count} failure{'' if count == 1 else 's'}"


def signed(value: float, form: str) -> str:
    """With its sign; what is nothing in so many digits is no loss."""
    text = f"{value:+{form}}"
    return (text if float(text) else text.replace("-", "+")).replace("-", "\u2212")
