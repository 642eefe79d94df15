"""What the page says in words, from the numbers of the view. No HTML: who shows it escapes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from epymarl_fairtest.campaign.cautions import not_learned, worst_off_sentence
from epymarl_fairtest.campaign.coverage import ALL
from epymarl_fairtest.core import numbers
from epymarl_fairtest.core.numbers import amount, listed, percent
from epymarl_fairtest.core.statistics import Rate, area_interval, rate_of
from epymarl_fairtest.report.operators import operator_named
from epymarl_fairtest.report.view import Coverage, Floats, Group, Link, Round, View

NARROW = "\u00a0"  # between a word and its number


def estimate(rate: Rate) -> tuple[str, str, str]:
    return numbers.estimate(rate.estimate, rate.low, rate.high)


def number(value: float) -> str:
    return f"{value:,.0f}"


def threshold(theta: float) -> str:
    return f"{theta:.2f}" if round(theta, 2) == theta else f"{theta:.4g}"


def several(count: int, one: str, many: str | None = None) -> str:
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def agent(place: int) -> str:
    return f"agent{NARROW}{place + 1}"


# --- first screen -------------------------------------------------------------------------------------


def verdict(view: View) -> str:
    """The one sentence at the top."""
    summary, rate = view.record.summary, view.rate
    failures, judged = int(summary["failures"]), int(summary.get("evaluated", 0))
    distinct, begun = int(summary["distinct_failures"]), starts(summary)
    found = several(distinct, "different failure")
    if begun <= distinct:  # alike failures may come from more starts than there are different ones
        found += f" from {several(begun, 'start')}"
    if judged and int(summary.get("undefined", 0)) == judged:
        return "Nothing can be said about fairness: in no executed episode did any agent receive anything."
    if rate is None:
        if not failures:
            found = f"no unfair execution in {several(judged, 'episode')}"
        unknown = "how often the team is unfair in random executions is not known from this run"
        return f"The search ({summary.get('method')}) found {found}; {unknown}."
    if rate.count:
        team = "This team has not learned its task. It" if not_learned(view.summary) else "This team"
        often = f"{team} treats an agent unfairly in {estimate(rate)[0]} of its random executions"
        if view.searched:
            return f"{often}; the search found {found}."
        return f"{often}: {number(rate.count)} of {number(rate.executions)} were unfair."
    bound = f"at most {estimate(rate)[2]} of its random executions are unfair, with 95% confidence"
    if failures:
        none = f"None of {several(rate.executions, 'random execution')} of this team was unfair"
        return f"{none} ({bound}), but the search found {found}."
    return f"No unfair execution of this team was found in {several(judged, 'episode')}: {bound}."


def starts(summary: Mapping[str, Any]) -> int:
    """From which failures descend; near-copies of a start count once, where the run knows them."""
    distinct = summary.get("distinct_starts")
    return int(summary.get("roots", 0) if distinct is None else distinct)


def rate_sentence(view: View) -> str:
    rate = view.rate
    if rate is None:
        why = view.record.missing.get("executions.npz")
        if why is None:
            why = f"in a run of {view.record.summary.get('method')} no executions are on record as random ones"
        return f"The natural rate is not known: {why}."
    value, low, high = estimate(rate)
    sentence = (
        f"{number(rate.count)} of {several(rate.executions, 'random execution')} were unfair: {value},"
        f" exact binomial 95% interval {low} to {high}."
    )
    if view.undefined:
        sentence += f" In {number(view.undefined)} of them nobody received anything; these are not counted as unfair."
    return sentence


def theta_sentence(view: View) -> str:
    rule = (
        f"An episode is unfair if {view.index_name} of what its agents receive is at most θ = {threshold(view.theta)}"
    )
    return f"{rule}." if view.quantile is None else f"{rule}: {quantile_words(view)}."


def quantile_words(view: View) -> str:
    """Where theta lies among the random executions."""
    assert view.quantile is not None
    share = percent(view.quantile)
    if view.rate is not None:  # with as many digits as the rate beside it
        share = numbers.estimate(view.quantile, view.rate.low, view.rate.high)[0]
    where = f"the {share} quantile of" if view.quantile else "below all"
    return f"{where} random executions" + (" with an index" if view.undefined else "")


def budget_sentence(view: View) -> str:
    summary = view.record.summary
    return (
        f"{number(summary['charged_strict'])} episodes if everything that was executed is charged (strict),"
        f" {number(summary['charged_paper'])} as the paper counts; {number(summary['executed_steps'])} environment"
        " steps."
    )


def suffix_sentence(view: View) -> str:
    alone, failures = view.record.summary.get("suffix_failures"), view.record.summary["failures"]
    if alone is None or not failures or (alone == failures and not view.searched):
        return ""
    return (
        f"{number(alone)} of {several(failures, 'unfair execution')} are unfair in what was executed alone, without"
        " what a parent left them. "
    )


# --- sections -----------------------------------------------------------------------------------------


def index_caption(view: View) -> str:
    """Says what the verdict says: all random executions count, with an index or without."""
    judged = len(view.record.executions["id"])
    lie = [f"{estimate(view.rate)[0]} of the random executions"] if view.rate is not None else []
    if view.searched:
        lie.append(f"{number(view.record.unfair().sum())} of all {number(judged)}, most of which the search chose")
    caption = f"Distribution of {view.index_name}. At or left of θ = {threshold(view.theta)} lie {listed(lie)}."
    if view.rate is not None and view.undefined:
        caption += f" {percent(view.undefined / view.rate.executions)} of the random executions have no index: nobody"
        caption += " received anything."
    return caption


def depth_sentence(view: View) -> str:
    """How low it goes without a search, and with one."""
    index = view.record.executions["index"]
    natural = index[view.record.random & ~np.isnan(index)]
    sentences = []
    if len(natural):
        low, fifth, middle = np.quantile(natural, [0, 0.05, 0.5]).tolist()
        parts = f"median {middle:.3f}, 5% quantile {fifth:.3f}, lowest {low:.3f}"
        sentences.append(f"Random executions: {parts}.")
    if view.searched:
        sentences.append(f"The lowest that the search found is {np.nanmin(index):.3f}.")
    return " ".join(sentences)


def starved_sentence(view: View) -> str:
    """What 'worst off' means for the sign of these rewards."""
    if view.sign == "negative":
        meaning = (
            "All rewards are costs here (zero or below, such as minus a distance): the worst off is the agent that"
            " receives least, that is, bears the largest cost. A share is its part of the whole cost."
        )
    elif view.sign == "positive":
        meaning = "The worst off is the agent that receives least. A share is its part of what the team received."
    else:
        meaning = (
            "Rewards have both signs here: the worst off is the agent that receives least. A share is the size of what"
            " it received, over the sum of these sizes."
        )
    return f"{meaning} Where several receive least, each of them counts."


def worst_caption(view: View) -> str:
    caption = "How often each agent is the worst off. " + (
        " ".join(f"{_named(group)}: {_shares(view, group.worst_off)}." for group in view.groups)
    )
    intervals = [estimate(one)[1:] for one in view.worst.least]
    ends = [f"{agent(place)} {low} to {high}" for place, (low, high) in zip(view.places, intervals, strict=False)]
    return f"{caption} Lines: exact 95% intervals, {listed(ends)}." if ends else caption


def share_caption(view: View) -> str:
    part = "cost" if view.sign == "negative" else "sum"
    means = " ".join(f"{_named(group)}: {_shares(view, group.share, group.share_error)}." for group in view.groups)
    return f"Mean share of the {part} per agent (± half of a 95% interval). {means}"


def pattern_sentence(view: View) -> str:
    """Who is shown to be worse off; is one left behind, or is one favoured?"""
    sentence = worst_off_sentence(view.worst.as_dict([place + 1 for place in view.places])) + " "
    if not view.worst.votes or view.agents < 2:
        return sentence.strip()
    unfair = view.groups[-1]
    if view.agents > 2:
        behind, favoured = (
            f"{number(count)} of {number(unfair.episodes)} ({interval(rate_of(count, unfair.episodes))})"
            for count in (unfair.left_behind, unfair.favoured)
        )
        sentence += f"In {behind} one agent is left behind by the others, in {favoured} one is favoured. "
    share = "bears {} of the cost" if view.sign == "negative" else "receives {} of the sum"
    sentence += f"On average the worst off {share.format(percent(float(unfair.ranked[0])))}"
    other = view.groups[0]
    if other is not unfair:
        sentence += f"; over {other.name} it is {percent(float(other.ranked[0]))}"
    return sentence + "."


def _named(group: Group) -> str:
    return f"{group.name.capitalize()} ({number(group.episodes)})"


def _shares(view: View, values: Floats, errors: Floats | None = None) -> str:
    told = [percent(float(x)) for x in values] if errors is None else list(map(mean_share, values, errors))
    return listed([f"{agent(place)} {share}" for place, share in zip(view.places, told, strict=True)])


def mean_share(mean: float, error: float) -> str:
    """A mean share and half of its interval."""
    return percent(float(mean)) + (f" ± {percent(float(error))}" if np.isfinite(error) else "")


def mean_amount(mean: float, error: float) -> str:
    return amount(mean) + (f" ± {amount(error)}" if np.isfinite(error) else "")


def interval(rate: Rate) -> str:
    _, low, high = estimate(rate)
    return f"95% interval {low} to {high}"


def competence_sentences(view: View) -> list[str]:
    """Has the team learned, and what would chance give?"""
    summary, sentences = view.summary, []
    competence = summary.get("competence") or {}
    random = competence.get("random_team")
    if random:
        p = "p < 0.001" if random["p"] < 0.001 else f"p = {random['p']:.3f}"
        sentences.append(
            f"From the same {several(random['starts'], 'start')} the team received more than a team that acts at random"
            f" in {number(random['better'])}{_of_starts(random)}, and less in {number(random['worse'])} (exact sign"
            f" test, {p})."
        )
    if competence:
        some = "In each of its random executions some agent received something."
        none = f"In {percent(competence['undefined'])} of its random executions no agent received anything."
        sentences.append(none if competence["undefined"] else some)
    if summary.get("unfair_by_chance") is not None:
        sentences.append(
            f"If rewards were divided at random among {view.agents} agents, θ = {threshold(view.theta)} would call"
            f" {percent(summary['unfair_by_chance'])} of the episodes unfair: a threshold means something else for"
            " another number of agents."
        )
    return sentences


def _of_starts(random: Mapping[str, Any]) -> str:
    better, starts = random["better"], random["starts"]
    return f" ({interval(rate_of(better, starts))})" if 0 <= better <= starts > 0 else ""


def growth_caption(view: View) -> str:
    growth, rate = view.growth, view.rate
    assert growth is not None
    judged = int(growth.episodes[-1])
    summary = view.record.summary
    caption = (
        f"Starts with an unfair execution, over the {number(judged)} executed episodes: {number(growth.total)}. From"
        f" them descend {several(int(summary['failures']), 'unfair execution')},"
        f" {number(summary['distinct_failures'])} of which differ."
    )
    if rate is None:
        return caption + " Without random executions there is no expectation of Random to compare with."
    caption += (
        f" Random would be expected to find {number(rate.estimate * judged)} in as many (grey; with the interval of the"
        f" rate {number(rate.low * judged)} to {number(rate.high * judged)})"
    )
    if not view.searched:
        return caption + ". This run is Random itself, so the line ends where the expectation does."
    if growth.total > rate.high * judged:
        many = f"{growth.total / (rate.estimate * judged):.1f} times as many" if rate.count else "more"
        caption += f": the search found {many}, at least {growth.total / (rate.high * judged):.1f} times"
    elif growth.total < rate.low * judged:
        caption += ": the search found fewer starts, and more from each"
    else:
        caption += ": within that interval the search found as many starts"
    return caption + ". Shaded: what the search made; the rest are random executions."


def round_caption(one: Round) -> str:
    caption = f"Round {one.number}: {number(one.counts[1])} of {number(one.counts[0])} candidates taken"
    if one.unfair is not None:
        unfair, counts = map(number, one.unfair), map(number, one.counts)
        among = [" of ".join(pair) for pair in zip(unfair, counts, strict=True)]
        caption += f". Unfair: {among[0]} candidates, {among[1]} taken"
    return f"{caption}. {several(len(one.front), 'candidate')} on the Pareto front."


def coverage_sentence(coverage: Coverage) -> str:
    sentence = (
        f"Unfair executions went through {number(coverage.cells)} of {number(coverage.total)} joint cells of"
        f" {coverage.of} ({percent(coverage.cells / coverage.total)}), {coverage.bins} bins per coordinate. Each map"
        " shows for one agent which share of the joint cells with that agent in that place was covered."
    )
    if coverage.of != ALL:
        sentence += " The grid of all agents together has more cells than any search could cover."
    if not coverage.placed:
        sentence += " Nothing is known of places in this task: the first two numbers that an agent sees stand for them."
    return sentence


def coverage_label(coverage: Coverage, place: int) -> str:
    values = coverage.maps[place]
    low, high, mean = (percent(float(value)) for value in (values.min(), values.max(), values.mean()))
    return f"{agent(place).capitalize()}: covered shares from {low} to {high}, {mean} on average."


def predictor_sentence(view: View) -> str:
    predictor = view.record.summary["predictor"]
    sentence = (
        f"The fairness predictor knows {number(predictor['joint_states'])} joint abstract states (level d ="
        f" {predictor['d']:.3g})"
    )
    if predictor.get("episodes"):
        episodes, unfair = (number(predictor[name]) for name in ("episodes", "unfair"))
        sentence += f", learned from {episodes} labelled episodes of which {unfair} unfair"
    return sentence + "."


def roc_caption(view: View) -> str:
    predictor = view.record.summary["predictor"]
    positive = int(predictor.get("unfair") or 0)
    negative = int(predictor.get("episodes") or 0) - positive

    def told(area: float) -> str:
        low, high = area_interval(area, positive, negative)
        return f"{area:.3f} (95% interval {low:.3f} to {high:.3f})" if (low, high) != (0, 1) else f"{area:.3f}"

    parts = [
        f"{told(float(predictor[key]))} {name}"
        for key, name in (
            ("auc_abstract", "from what the team decides, without seeing rewards"),
            ("auc_full", "with fairness features, which hold what each agent received"),
        )
        if predictor.get(key) is not None
    ]
    return "Out-of-bag ROC curves; area under the curve: " + listed(parts) + ". 0.5 is guessing, 1 is perfect."


def link_words(link: Link) -> str:
    return operator_named(link.operator).noun_at(link.step)


def lineage_caption(chains: Sequence[Sequence[Link]], theta: float) -> str:
    few, many = (pick(len(chain) - 1 for chain in chains) for pick in (min, max))
    changes = several(many, "change") if few == many else f"{few} to {many} changes"
    return (
        f"Fairness index of each link, from the random start to the failure; the dotted line is θ = {threshold(theta)}."
        f" It took {changes}."
    )
