"""summary.json, and the table that a user sees last in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import wrap
from typing import Any

from epymarl_fairtest.campaign.cautions import competence_rows
from epymarl_fairtest.campaign.steps.explain.words import summary_rows
from epymarl_fairtest.campaign.steps.replay import replay_sentence
from epymarl_fairtest.campaign.tally import Tally
from epymarl_fairtest.core.clock import Clock
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.ledger import Ledger
from epymarl_fairtest.core.numbers import estimate, percent
from epymarl_fairtest.core.statistics import CONFIDENCE
from epymarl_fairtest.engine.contract import Engine
from epymarl_fairtest.strategies.contract import Context

WIDE = 100  # characters of a row in the terminal
PATHS = ("results", "report")
NO_PREDICTOR = dict.fromkeys(("auc_abstract", "auc_full", "d", "joint_states"))


def summarise(
    context: Context, engine: Engine, tally: Tally, ledger: Ledger, clock: Clock, steps: Mapping[str, Any]
) -> dict[str, Any]:
    """The numbers of a run; `steps` is what the steps after the search add to them."""
    settings, notes, counted = context.settings, dict(context.notes), tally.summary()
    return {
        "task": context.task.name,
        "method": settings.method,
        "preset": settings.preset,
        "seed": context.seed,
        "index": settings.index,
        "theta": context.theta,
        **steps,
        "executed_episodes": ledger.executed_episodes,
        "executed_steps": ledger.executed_steps,
        "charged_strict": ledger.charged("strict"),
        "charged_paper": ledger.charged("paper"),
        **counted,
        **clock.spent(),
        "engine": engine.name,
        "predictor": notes.pop("predictor", NO_PREDICTOR),
        "ledger": ledger.as_dict(),
        "notes": notes,
    }


def summary_table(summary: dict[str, Any], out: Path) -> str:
    """The last thing a user sees in the terminal."""
    quantiles = summary["index_quantiles"]

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.3f}"

    rows = [
        ("natural rate", natural_rate(summary["natural_rate"])),
        ("task", f"{summary['task']}   threshold {summary['theta']:.3g} on {INDICES[summary['index']].label}"),
        ("method", f"{summary['method']} ({summary['preset']}), seed {summary['seed']}, {summary['engine']} engine"),
        ("found by the search", search_share(summary)),
        (
            "  distinct",
            "{distinct_failures:,}; {distinct_failures_wide:,} at three times the distance".format(**summary),
        ),
        ("  starts", "{distinct_starts:,} distinct, from {roots:,} seeds".format(**summary)),
        ("  after the prefix", f"{summary['suffix_failures']:,} are unfair in what was executed alone"),
        ("  coverage", f"{summary['coverage']:.3f} of the position grid of {summary['coverage_of']}"),
        ("  confirmed", replay_sentence(summary).rstrip(".")),
        ("undefined episodes", f"{summary['undefined']} (no agent received anything)"),
        ("fairness index", f"lowest {number(quantiles['0'])}, median {number(quantiles['0.5'])}"),
        *summary_rows(summary.get("explain")),
        *competence_rows(summary),
        ("charged", f"{summary['charged_strict']} episodes strict, {summary['charged_paper']} as the paper counts"),
        ("time", f"{summary['wall_seconds']:.1f} s for {summary['executed_steps']} environment steps"),
        ("  cpu", _shares(summary)),
        ("results", str(out)),
    ]
    if (page := out / "report" / "index.html").is_file():
        rows.append(("report", str(page)))
    predictor = summary["predictor"]
    if predictor["d"] is not None:
        quality = f"out-of-bag AUC {number(predictor['auc_abstract'])} ({number(predictor['auc_full'])} seeing rewards)"
        rows.insert(
            [name for name, _ in rows].index("time"),
            ("predictor", f"{quality}, {predictor['joint_states']} joint states, d {predictor['d']:.3g}"),
        )
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {line}" for row in rows for name, line in _folded(*row)]
    rule = "-" * min(max(len(line) for line in lines), width + 4 + WIDE)  # a path may be longer
    return "\n".join([rule, "  FairTest", rule, *lines, rule])


def _folded(name: str, text: str) -> list[tuple[str, str]]:
    """A row for each line of a long text; paths stay whole, to be copied."""
    if name in PATHS:
        return [(name, text)]
    parts = wrap(text, WIDE, break_long_words=False, break_on_hyphens=False)
    return [(name if number == 0 else "", line) for number, line in enumerate(parts)]


def natural_rate(rate: Mapping[str, float] | None) -> str:
    """The natural rate, as summary.json holds it, in words."""
    if rate is None:
        return "not known: there were no random executions (natural_episodes=0)"
    value, low, high = estimate(rate["rate"], rate["low"], rate["high"])
    interval = f"({low} to {high}, {CONFIDENCE:.0%} interval)"
    return f"{value} unfair {interval}, {rate['unfair']:,} of {rate['executions']:,} random executions"


def search_share(summary: Mapping[str, Any]) -> str:
    """What the search found: it says how well the search went, not how unfair the team is."""
    failures, evaluated = summary["failures"], summary["evaluated"]
    share = f" ({percent(failures / evaluated)}, the search's share)" if evaluated else ""
    return f"{failures:,} unfair episodes of {evaluated:,}{share}"


def _shares(summary: dict[str, Any]) -> str:
    """The CPU time and the largest parts of it; the twin's proof always."""
    total, phases = summary["cpu_seconds"], dict(summary["phases"])
    proof = phases.pop("proof", None)
    parts = sorted(phases.items(), key=lambda item: -item[1])[:4]
    text = f"{total:.1f} s: " + ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in parts if seconds)
    return text if proof is None else f"{text}, the twin's proof {proof:.2f} s"
