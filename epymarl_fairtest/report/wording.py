"""What the page says in words, from the numbers of the view. No HTML: who shows it escapes it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from epymarl_fairtest.core.statistics import Rate
from epymarl_fairtest.report.view import Coverage, Floats, Group, Growth, Link, Round, View

NARROW = "\u00a0"  # between a number and its unit
MANY = 0.05  # share of episodes in which nobody receives anything, from which on the verdict says so
HAPPENED = {
    "seed": "random start",
    "state": "chosen start",
    "mutation": "mutation",
    "crossover": "splice",
    "action": "forced actions",
}


def percent(share: float) -> str:
    """Two digits that matter: 12 %, 1.9 %, 0.015 %."""
    value = 100 * share
    if value == 0 or not math.isfinite(value):
        return f"0{NARROW}%"
    if value >= 99.95:
        return f"100{NARROW}%" if value == 100 else f"{math.floor(value * 100) / 100:.2f}{NARROW}%"
    digits = max(1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:.{digits}f}{NARROW}%"


def estimate(rate: Rate) -> tuple[str, str, str]:
    """The rate and the ends of its interval, with as many digits as tell the ends apart."""
    width = 100 * (rate.high - rate.low)
    digits = min(max(1 - math.floor(math.log10(width)), 0), 6) if width > 0 else 0
    value, low, high = (
        f"{100 * x:.{digits}f}{NARROW}%" if 0 < x < 1 else percent(x) for x in (rate.estimate, rate.low, rate.high)
    )
    return value, low, high


def number(value: float) -> str:
    return f"{value:,.0f}"


def amount(value: float) -> str:
    """What an agent received."""
    digits = 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:.{digits}f}".replace("-", "−")


def threshold(theta: float) -> str:
    return f"{theta:.2f}" if round(theta, 2) == theta else f"{theta:.4g}"


def several(count: int, one: str, many: str | None = None) -> str:
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def agent(place: int) -> str:
    return f"agent{NARROW}{place + 1}"


def listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


# --- first screen -------------------------------------------------------------------------------------


def verdict(view: View) -> str:
    """The one sentence at the top."""
    summary, rate = view.record.summary, view.rate
    found, roots = int(summary["failures"]), int(summary.get("roots", 0))
    judged = int(summary.get("evaluated", 0))
    method = str(summary.get("method"))
    starts = f"from {several(roots, 'start')}"
    if judged and int(summary.get("undefined", 0)) == judged:
        return "Nothing can be said about fairness: in no executed episode did any agent receive anything."
    if rate is None:
        what = f"The search ({method}) found {several(found, 'unfair execution')} {starts}" if found else (
            f"The search ({method}) found no unfair execution in {several(judged, 'episode')}"
        )  # fmt: skip
        return f"{what}; how often the team is unfair in ordinary episodes, this run does not tell."
    empty = view.undefined / rate.executions
    if rate.count:
        often = f"This team treats an agent unfairly in {percent(rate.estimate)} of its ordinary episodes"
        if empty >= MANY:
            often += f" and pays nobody in {percent(empty)}"
        if method == "random":
            return f"{often}: {number(rate.count)} of {several(rate.executions, 'random execution')}."
        return f"{often}; the search found {several(found, 'unfair execution')} {starts}."
    bound = f"at most {estimate(rate)[2]} of its ordinary episodes are unfair, with 95{NARROW}% confidence"
    if empty >= MANY:
        bound += f"; in {percent(empty)} nobody receives anything"
    if found:
        return (
            f"None of {several(rate.executions, 'ordinary episode')} of this team was unfair ({bound}), but the search"
            f" found {several(found, 'unfair execution')} {starts}."
        )
    return f"No unfair execution of this team was found in {several(judged, 'episode')}: {bound}."


def rate_sentence(view: View) -> str:
    rate = view.rate
    if rate is None:
        why = view.record.missing.get("executions.npz")
        if why is None:
            why = f"in a run of {view.record.summary.get('method')} no executions are on record as random ones"
        return f"The natural failure rate is not known: {why}."
    value, low, high = estimate(rate)
    told = (
        f"{number(rate.count)} of {several(rate.executions, 'random execution')} were unfair: {value},"
        f" exact binomial 95{NARROW}% interval {low} to {high}."
    )
    if view.undefined:
        told += f" In {number(view.undefined)} of them nobody received anything; they count as not unfair."
    return told


def theta_sentence(view: View) -> str:
    told = (
        f"An episode is unfair if {view.index_name} of what its agents receive is at most θ = {threshold(view.theta)}"
    )
    if view.quantile is None:
        return f"{told}."
    return f"{told}: {quantile_words(view)}."


def quantile_words(view: View) -> str:
    """Where theta lies among the ordinary episodes."""
    assert view.quantile is not None
    where = f"the {percent(view.quantile)} quantile of" if view.quantile else "below all"
    return f"{where} ordinary episodes" + (" with an index" if view.undefined else "")


def budget_sentence(view: View) -> str:
    summary = view.record.summary
    return (
        f"{number(summary['charged_strict'])} episodes if everything that was executed is charged (strict),"
        f" {number(summary['charged_paper'])} as the paper counts; {number(summary['executed_steps'])} environment"
        " steps."
    )


def suffix_sentence(view: View) -> str:
    alone, found = view.record.summary.get("suffix_failures"), view.record.summary["failures"]
    if alone is None or not found or view.record.summary.get("method") == "random":
        return ""
    return f"{number(alone)} of the failures are unfair in what was executed alone, without what a parent left them. "


# --- sections -----------------------------------------------------------------------------------------


def index_caption(view: View) -> str:
    assert view.histogram is not None
    below = view.histogram.edges[1:] <= view.theta
    everything = percent(float(view.histogram.everything[below].sum()))
    at = f"At or left of θ = {threshold(view.theta)}"
    told = f"Distribution of {view.index_name}. {at} lie {everything} of all executions"
    if view.histogram.ordinary is None or view.record.summary.get("method") == "random":
        return told + "."
    return told + f" and {percent(float(view.histogram.ordinary[below].sum()))} of the ordinary episodes."


def depth_sentence(view: View) -> str:
    """How low it goes without a search, and with one."""
    executions, ordinary = view.record.executions, view.record.random
    told = []
    for name, index in (("ordinary", executions["index"][ordinary]), ("all", executions["index"])):
        defined = index[~np.isnan(index)]
        if len(defined) and (name == "all" or not ordinary.all()):
            low, fifth, middle = np.quantile(defined, [0, 0.05, 0.5]).tolist()
            parts = f"median {middle:.3f}, 5{NARROW}% quantile {fifth:.3f}, lowest {low:.3f}"
            told.append(f"{name.capitalize()} episodes: {parts}.")
    return " ".join(told)


def starved_sentence(view: View) -> str:
    """What 'worst off' means for the sign of these rewards."""
    if view.sign == "negative":
        told = (
            "All rewards are costs here (zero or below, such as minus a distance): the worst off is the agent that"
            " receives least, that is, bears the largest cost. A share is its part of the whole cost."
        )
    elif view.sign == "positive":
        told = "The worst off is the agent that receives least. A share is its part of what the team received."
    else:
        told = (
            "Rewards have both signs here: the worst off is the agent that receives least. A share is the size of what"
            " it received, over the sum of these sizes."
        )
    return f"{told} Where several receive least, the place is split between them."


def worst_caption(view: View) -> str:
    return "How often each agent is the worst off; the dotted line is an even " + percent(1 / view.agents) + ". " + (
        " ".join(f"{_named(group)}: {_shares(group.worst_off)}." for group in _shown(view))
    )  # fmt: skip


def share_caption(view: View) -> str:
    part = "cost" if view.sign == "negative" else "sum"
    return f"Mean share of the {part} per agent. " + (
        " ".join(f"{_named(group)}: {_shares(group.share)}." for group in _shown(view))
    )


def pattern_sentence(view: View) -> str:
    """Is one left behind, or is one favoured?"""
    unfair = next((group for group in view.groups if group.name == "unfair executions"), None)
    if unfair is None or view.agents < 2:
        return "There is no unfair execution to look at."
    most = int(unfair.worst_off.argmax())
    told = (
        f"{agent(most).capitalize()} is the worst off in {percent(float(unfair.worst_off[most]))} of the unfair"
        f" executions. "
    )
    if view.agents > 2:
        told += (
            f"In {percent(unfair.left_behind)} of them one agent is left behind by the others, in"
            f" {percent(unfair.favoured)} one is favoured. "
        )
    share = "bears {} of the cost" if view.sign == "negative" else "receives {} of the sum"
    told += f"On average the worst off {share.format(percent(float(unfair.ranked[0])))}"
    other = view.groups[0]
    if other is not unfair:
        told += f"; over {other.name} it is {percent(float(other.ranked[0]))}"
    return told + "."


def _shown(view: View) -> list[Group]:
    """The figure compares two: the most ordinary group and the unfair one."""
    return [view.groups[0], view.groups[-1]] if len(view.groups) > 1 else view.groups


def _named(group: Group) -> str:
    return f"{group.name.capitalize()} ({number(group.episodes)})"


def _shares(values: Floats) -> str:
    return listed([f"{agent(place)} {percent(float(value))}" for place, value in enumerate(values)])


def growth_caption(view: View) -> str:
    growth = view.growth
    assert growth is not None
    judged = int(growth.episodes[-1])
    told = f"Unfair executions found over the {number(judged)} executed episodes: {number(growth.total)}."
    rate = view.rate
    if rate is None:
        return told + " Without random executions there is no expectation of Random to compare with."
    told += (
        f" Random would be expected to find {number(rate.estimate * judged)} in as many (grey; with the interval of the"
        f" rate {number(rate.low * judged)} to {number(rate.high * judged)})"
    )
    if view.record.summary.get("method") == "random":
        return told + ". This run is Random itself, so the line ends where the expectation does."
    if rate.count:
        told += f": {growth.total / (rate.estimate * judged):.1f} times as many"
    told += "." + (" Shaded: what the search made; the rest are random executions." if searched(growth) else "")
    return told


def searched(growth: Growth) -> bool:
    return any(not random for _, _, _, random in growth.phases)


def round_caption(one: Round) -> str:
    told = f"Round {one.number}: {number(one.counts[1])} of {number(one.counts[0])} candidates taken"
    if one.unfair is not None:
        told += f". Unfair: {percent(one.unfair[0])} of the candidates, {percent(one.unfair[1])} of the taken"
    return f"{told}. {several(len(one.front), 'candidate')} on the Pareto front."


def coverage_sentence(coverage: Coverage) -> str:
    told = (
        f"Unfair executions went through {number(coverage.cells)} of {number(coverage.total)} joint cells"
        f" ({percent(coverage.cells / coverage.total)}), {coverage.bins} bins per coordinate. Each map shows for one"
        " agent which share of the joint cells with that agent in that place was covered."
    )
    if not coverage.placed:
        told += " Nothing is known of places in this task: the first two numbers that an agent sees stand for them."
    return told


def coverage_label(coverage: Coverage, place: int) -> str:
    values = coverage.maps[place]
    low, high, mean = (percent(float(value)) for value in (values.min(), values.max(), values.mean()))
    return f"{agent(place).capitalize()}: covered shares from {low} to {high}, {mean} on average."


def predictor_sentence(view: View) -> str:
    found = view.record.summary["predictor"]
    told = (
        f"The fairness predictor knows {number(found['joint_states'])} joint abstract states (level d ="
        f" {found['d']:.3g})"
    )
    if found.get("episodes"):
        told += (
            f", learned from {number(found['episodes'])} labelled episodes of which {number(found['unfair'])} unfair"
        )
    return told + "."


def roc_caption(view: View) -> str:
    found = view.record.summary["predictor"]
    parts = [
        f"{name} {found[key]:.3f}"
        for name, key in (("with fairness features", "auc_full"), ("abstract states alone", "auc_abstract"))
        if found.get(key) is not None
    ]
    return "Out-of-bag ROC curves; area under the curve: " + listed(parts) + ". 0.5 is guessing, 1 is perfect."


def link_words(link: Link) -> str:
    words = HAPPENED.get(link.operator, link.operator)
    return f"{words} at step {link.step}" if link.operator in ("mutation", "crossover") else words


def lineage_caption(chains: Sequence[Sequence[Link]], theta: float) -> str:
    few, many = (pick(len(chain) - 1 for chain in chains) for pick in (min, max))
    changes = several(many, "change") if few == many else f"{few} to {many} changes"
    return (
        f"Fairness index of each link, from the random start to the failure; the dotted line is θ = {threshold(theta)}."
        f" It took {changes}."
    )
