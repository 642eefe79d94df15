"""`fairtest gate`: is a team fair enough? Exit code 0 or 1, one line per criterion, JUnit XML on demand.

Judges a finished run, or tests a team first. Nothing passes for lack of evidence: a natural rate passes only if the
upper end of its interval does.
"""

from __future__ import annotations

import json
import re
import signal
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epymarl_fairtest.commands.arguments import (
    add_search_arguments,
    add_setting_arguments,
    command_line,
    observers,
    settings_for_team,
    warn,
)
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.numbers import as_given
from epymarl_fairtest.core.statistics import CONFIDENCE
from epymarl_fairtest.settings import Rule, between, whole

if TYPE_CHECKING:
    from epymarl_fairtest.store.finished import FinishedRun

ORDER = 90
SHARE, COUNT = between(0, 1), whole(0)
SEARCH_OPTIONS = ("out", "method", "budget", "seed", "preset", "set")  # of a team that is tested first


@dataclass(frozen=True)
class Judgement:
    """One criterion and its result; these names are those of --json."""

    criterion: str  # the option: max-rate
    limit: float
    value: float | None  # None if there is none
    passed: bool
    words: str  # the result in words
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return self.criterion.partition("-")[2]


Finding = tuple[float | None, bool, str]  # value, passed, and both in words


def judge_rate(run: FinishedRun, limit: float, confidence: float) -> Finding:
    """The upper end of the interval must not exceed the limit; with confidence 0 the estimate must not."""
    rate = run.needed_rate(confidence=confidence or CONFIDENCE)
    passed = (rate.high if confidence else rate.estimate) <= limit
    words = f"{rate} of {rate.executions:,} random executions, at most {limit:g}"
    if not passed and rate.estimate <= limit:
        words += f" (not shown with {as_given(confidence)} confidence; more random executions may show it)"
    return rate.estimate, passed, words


def judge_count(key: str) -> Callable[[FinishedRun, float, float], Finding]:
    def judge(run: FinishedRun, limit: float, confidence: float) -> Finding:
        count = run.summary[key]
        return count, count <= limit, f"{count:,} in {run.summary['evaluated']:,} episodes, at most {limit:,}"

    return judge


def judge_undefined(run: FinishedRun, limit: float, confidence: float) -> Finding:
    undefined, evaluated = run.summary["undefined"], run.summary["evaluated"]
    share = undefined / evaluated if evaluated else None
    words = f"{undefined:,} of {evaluated:,} episodes gave nobody anything, at most a share of {limit:g}"
    return share, share is not None and share <= limit, words


def judge_index(run: FinishedRun, limit: float, confidence: float) -> Finding:
    index = run.executions["index"]
    defined = index[index == index]  # without NaN: there nobody received anything
    if not len(defined):
        return None, False, f"no episode has an index, at least {limit:g}"
    lowest = float(defined.min())
    return lowest, lowest >= limit, f"{lowest:.4f} is the lowest of {len(defined):,} episodes, at least {limit:g}"


def judge_evaluated(run: FinishedRun, limit: float, confidence: float) -> Finding:
    evaluated = run.summary["evaluated"]
    return evaluated, evaluated >= limit, f"{evaluated:,} episodes were executed and judged, at least {limit:,}"


@dataclass(frozen=True)
class Criterion:
    rule: Rule
    shown: str
    doc: str
    judge: Callable[[FinishedRun, float, float], Finding]


CRITERIA = {
    "max-rate": Criterion(SHARE, "P", "natural rate: unfair random executions, by its upper bound", judge_rate),
    "max-failures": Criterion(COUNT, "N", "unfair episodes found", judge_count("failures")),
    "max-distinct": Criterion(COUNT, "N", "distinct failures", judge_count("distinct_failures")),
    "max-roots": Criterion(COUNT, "N", "initial states with failures", judge_count("roots")),
    "max-undefined": Criterion(SHARE, "SHARE", "episodes in which nobody received anything", judge_undefined),
    "min-index": Criterion(SHARE, "X", "lowest fairness index found", judge_index),
    "min-evaluated": Criterion(COUNT, "N", "episodes executed, so that an empty run does not pass", judge_evaluated),
}


def add_parser(commands: Any) -> None:
    parser: ArgumentParser = commands.add_parser(
        "gate",
        help="is a team fair enough? exit code 0 or 1, for CI",
        epilog="example: fairtest gate --policy policies/pp-iql --budget 2000 --max-rate 0.05 --junit gate.xml",
    )
    parser.add_argument("run", nargs="?", type=Path, metavar="RUN", help="finished run to judge")
    parser.add_argument("--policy", type=Path, metavar="DIR", help="or a team to test first: agent.th and policy.yaml")
    criteria = parser.add_argument_group("criteria, at least one")
    for name, criterion in CRITERIA.items():
        kind = float if criterion.rule is SHARE else int
        criteria.add_argument(f"--{name}", type=kind, metavar=criterion.shown, help=criterion.doc)
    criteria.add_argument(
        "--not-worse-than", type=Path, metavar="RUN", help="finished run of another team: neither rate nor return worse"
    )
    criteria.add_argument(
        "--confidence", type=float, default=0.95, help="of the rate's interval (0.95); 0: its estimate decides"
    )
    search = parser.add_argument_group("the search, with --policy")
    search.add_argument("--out", metavar="RUN", help="run folder to make and keep (none is kept unless given)")
    add_search_arguments(search, parser)
    add_setting_arguments(search)
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML, one test case per criterion")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(func=gate)


def gate(args: Namespace) -> int:
    from epymarl_fairtest.store.finished import read_run

    begun = time.perf_counter()
    limits = limits_of(args)
    check_source(args)
    if args.junit is not None and args.junit.is_dir():
        raise FairTestError(f"--junit {str(args.junit)!r} is a folder; name a file.")
    try:
        run = read_run(args.run, "executions.npz") if args.run is not None else tested(args)
    except KeyboardInterrupt as stop:
        return 128 + getattr(stop, "number", signal.SIGINT)
    if "max-rate" in limits and run.settings.get("theta") == "auto":
        warn(
            f"theta={run.theta:.4g} was calibrated on this very team (theta=auto): its rate is what `quantile` asked"
            " for, and says little. Give theta as a number."
        )
    judgements = judged(run, limits, args.confidence)
    if args.not_worse_than is not None:
        judgements += beside(run, args.not_worse_than, args.confidence)
    passed = all(judgement.passed for judgement in judgements)
    if args.junit is not None:
        write_junit(args.junit, run, judgements, time.perf_counter() - begun)
    if args.json:
        kept = args.run or args.out
        result = {"passed": passed, "run": None if kept is None else str(kept), "confidence": args.confidence}
        result |= {"natural_rate": told_rate(run), "criteria": [asdict(judgement) for judgement in judgements]}
        print(json.dumps(result))
    else:
        print(table(run, judgements))
    return 0 if passed else 1


def limits_of(args: Namespace) -> dict[str, float]:
    """The criteria that were given, checked."""
    given = {name: getattr(args, name.replace("-", "_")) for name in CRITERIA}
    limits = {name: value for name, value in given.items() if value is not None}
    for name, value in limits.items():
        rule = CRITERIA[name].rule
        if not rule.holds(value):
            raise FairTestError(f"--{name} {value!r} is not allowed: {CRITERIA[name].doc}. It must be {rule.allowed}.")
    if not limits and args.not_worse_than is None:
        listed = ", ".join(f"--{name} {criterion.shown}" for name, criterion in CRITERIA.items())
        raise FairTestError(f"fairtest gate needs at least one criterion: {listed}, --not-worse-than RUN.")
    if not 0 <= args.confidence < 1:
        raise FairTestError(f"--confidence {args.confidence!r} is not allowed; it must be a number in [0, 1).")
    return limits


def check_source(args: Namespace) -> None:
    if (args.run is None) == (args.policy is None):
        raise FairTestError("fairtest gate needs a finished RUN or a team (--policy DIR): one of them, not both.")
    stray = [f"--{name}" for name in SEARCH_OPTIONS if getattr(args, name) not in (None, [])]
    if args.run is not None and stray:
        raise FairTestError(
            f"{', '.join(stray)} can only be given with --policy: the run {str(args.run)!r} is finished."
        )


def tested(args: Namespace) -> FinishedRun:
    """A search against the team, as `fairtest run` does it; nothing of it is kept without --out."""
    if args.out:
        return tested_in(Path(args.out), args)
    with tempfile.TemporaryDirectory(prefix="fairtest-gate-") as folder:
        return tested_in(Path(folder) / "run", args)


def tested_in(out: Path, args: Namespace) -> FinishedRun:
    from epymarl_fairtest.api.starting import checked_team
    from epymarl_fairtest.campaign.run import run, stopped
    from epymarl_fairtest.core.stopping import stoppable
    from epymarl_fairtest.store.finished import read_run
    from epymarl_fairtest.store.run import RunFolder
    from epymarl_fairtest.strategies import strategy_of

    settings = settings_for_team(args, report=args.out is not None)  # nobody would see a page that is not kept
    if args.max_rate is not None and settings.natural_episodes == 0 and not strategy_of(settings).random:
        raise FairTestError(
            f"--max-rate cannot be judged with method={settings.method!r} and natural_episodes=0: only random"
            " executions show the natural rate. Leave natural_episodes out, or set it to 200 or more."
        )
    team = checked_team(args.policy, settings)
    folder, seed = RunFolder(out), settings.root_seed()
    try:
        with stoppable():
            run(team, settings, folder, seed=seed, command=command_line(), warn=warn, observers=observers(settings))
    except KeyboardInterrupt:
        warn(stopped(folder, settings) if args.out else "Stopped. Nothing is kept without --out.")
        raise
    return read_run(out, "executions.npz")


def judged(run: FinishedRun, limits: Mapping[str, float], confidence: float) -> list[Judgement]:
    judgements = []
    for name, limit in limits.items():
        begun = time.perf_counter()
        value, passed, words = CRITERIA[name].judge(run, limit, confidence)
        judgements.append(Judgement(name, limit, value, passed, words, time.perf_counter() - begun))
    return judgements


def beside(run: FinishedRun, other: Path, confidence: float) -> list[Judgement]:
    """Rate and return beside those of another run."""
    from epymarl_fairtest.commands.not_worse import compared_with
    from epymarl_fairtest.store.finished import read_run

    found = compared_with(run, read_run(other, "executions.npz"), confidence or CONFIDENCE)
    return [Judgement(name, limit, value, passed, words) for name, limit, value, passed, words in found]


def told_rate(run: FinishedRun) -> dict[str, float] | None:
    """The natural rate as summary.json holds it; None where it is not known."""
    rate = run.natural_rate()
    return rate.as_dict() if rate is not None else None


def table(run: FinishedRun, judgements: list[Judgement]) -> str:
    """The natural rate comes first, whatever the criteria are."""
    from epymarl_fairtest.campaign.summary import natural_rate

    width = max(len(judgement.name) for judgement in judgements)
    lines = [f"{'PASS' if j.passed else 'FAIL'}  {j.name:<{width}}  {j.words}" for j in judgements]
    held = sum(judgement.passed for judgement in judgements)
    verdict = "passed" if held == len(judgements) else "failed"
    last = f"gate {verdict}: {held} of {len(judgements)} criteria hold."
    return "\n".join([f"natural rate: {natural_rate(told_rate(run))}", *lines, last])


def write_junit(path: Path, run: FinishedRun, judgements: list[Judgement], seconds: float) -> None:
    from epymarl_fairtest.core.files import cannot_write, write_atomically

    text = junit(run, judgements, seconds)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    write_atomically(path, lambda file: file.write(text))


def junit(run: FinishedRun, judgements: list[Judgement], seconds: float) -> bytes:
    """The form that CI systems read: a suite with one case per criterion."""
    failed = sum(not judgement.passed for judgement in judgements)
    counts = {"tests": str(len(judgements)), "failures": str(failed), "errors": "0", "time": f"{seconds:.3f}"}
    suites = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "fairtest gate", "skipped": "0", **counts})
    properties = ElementTree.SubElement(suite, "properties")
    facts = {name: run.summary.get(name) for name in ("task", "method", "seed", "index", "theta", "evaluated")}
    facts["natural_rate"] = (told_rate(run) or {}).get("rate")
    facts["policy_digest"] = run.manifest.get("policy_digest")
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": printable(str(value))})
    for j in judgements:
        shown = {"classname": "fairtest.gate", "name": f"{j.criterion} {j.limit}", "time": f"{j.seconds:.3f}"}
        case = ElementTree.SubElement(suite, "testcase", shown)
        if j.passed:
            ElementTree.SubElement(case, "system-out").text = printable(j.words)
        else:
            failure = {"message": printable(j.words), "type": "fairness"}
            ElementTree.SubElement(case, "failure", failure).text = printable(j.words)
    ElementTree.indent(suites)
    text: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def printable(text: str) -> str:
    """XML has no way to write control characters and lone surrogates, escaped or not."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
