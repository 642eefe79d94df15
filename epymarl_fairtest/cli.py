"""The `fairtest` command."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epymarl_fairtest import __version__
from epymarl_fairtest.config import Settings
from epymarl_fairtest.errors import FairTestError

if TYPE_CHECKING:
    from epymarl_fairtest.run import Subject
    from epymarl_fairtest.store.run import RunFolder


def main(argv: Sequence[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(argv)
    if "func" not in args:
        parser.print_help(sys.stderr)
        return 2
    try:
        return args.func(args)
    except FairTestError as error:
        print(f"fairtest: {_as_typed(str(error), args)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fairtest: stopped.", file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:  # whoever read the output has seen enough (head, less)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


NAMED = {name: f"--{name}" for name in ("method", "budget", "seed", "preset", "accounting", "out", "quantile")}
NAMED["calibration_episodes"] = "--episodes"


def _as_typed(message: str, args: argparse.Namespace) -> str:
    """With a setting named as on this command line: fairtest_args.NAME is how a host calls it."""
    if "set" not in args:
        return message
    own = {name: option for name, option in NAMED.items() if name in args}
    return re.sub(r"fairtest_args\.(\w+)", lambda found: own.get(found[1], f"--set {found[1]}"), message)


HELP = """\
Does a trained MARL team share its rewards fairly?

  fairtest demo                        train a small team and test it
  fairtest install CHECKOUT            then add fairtest=True to a training
  fairtest run --policy DIR --out RUN  test a saved team: RUN/report/index.html

Commands (each has a --help with an example; fairtest --version):
"""


class _Parser(argparse.ArgumentParser):
    def format_help(self) -> str:
        """One screen: what people do first, then a line per command."""
        (commands,) = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        return HELP + "".join(f"  {command.dest:<12}{command.help}\n" for command in commands._choices_actions)


class _Formatter(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """An example is copied, so its line is not broken."""
        return text if text.startswith("example") else super()._fill_text(text, width, indent)


class _Command(argparse.ArgumentParser):
    """Numbers that are none are told in our words, and a list of arguments may stand behind options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": _Formatter, **kwargs})
        self.register("type", int, partial(_number, int, "a whole number, for example 1000"))
        self.register("type", float, partial(_number, float, "a number, for example 0.05"))
        self._mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        lists = any(action.nargs == "*" and not action.option_strings for action in self._actions)
        if self._mixing or not lists:
            return super().parse_known_args(args, namespace)
        self._mixing = True  # it comes back here
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False


def _number(kind: Callable[[str], Any], allowed: str, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; it must be {allowed}") from None


def _parser() -> argparse.ArgumentParser:
    from epymarl_fairtest.completion import add_completion_parser
    from epymarl_fairtest.demo import add_demo_parser
    from epymarl_fairtest.experiment.command import add_study_parser
    from epymarl_fairtest.host.doctor import add_doctor_parser
    from epymarl_fairtest.host.install import add_install_parser
    from epymarl_fairtest.host.launch import add_launch_parser
    from epymarl_fairtest.policies import add_policies_parser
    from epymarl_fairtest.replay import add_replay_parser
    from epymarl_fairtest.report.command import add_report_parser
    from epymarl_fairtest.workflow.compare import add_compare_parser
    from epymarl_fairtest.workflow.export import add_export_parser
    from epymarl_fairtest.workflow.gate import add_gate_parser
    from epymarl_fairtest.workflow.runs import add_runs_parser

    parser = _Parser(prog="fairtest")
    parser.add_argument("--version", action="version", version=f"fairtest {__version__}")
    commands: Any = parser.add_subparsers(metavar="COMMAND", parser_class=_Command)
    add_demo_parser(commands)
    add_install_parser(commands)
    add_launch_parser(commands)
    _add_run_parser(commands)
    add_runs_parser(commands)
    add_report_parser(commands)
    add_replay_parser(commands)
    add_compare_parser(commands)
    add_gate_parser(commands)
    add_export_parser(commands)
    add_study_parser(commands)
    _add_calibrate_parser(commands)
    _add_predictor_parser(commands)
    add_policies_parser(commands)
    add_doctor_parser(commands)
    add_completion_parser(commands, _parser)
    return parser


def _add_run_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="test a saved team, no training framework needed",
        epilog="example: fairtest run --policy results/fairtest/RUN/policy --budget 2000 --out runs/1",
    )
    _add_team_arguments(parser, required=False)
    parser.add_argument("--out", metavar="RUN", help="run folder to make")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with an interrupted run, its own settings")
    parser.add_argument("--method", help="strategy that chooses the tests")
    parser.add_argument("--budget", type=int, help="episodes it may spend")
    parser.set_defaults(func=_run)


def _add_calibrate_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "calibrate",
        help="the threshold that calls a given share of executions unfair",
        epilog="example: fairtest calibrate --policy results/fairtest/RUN/policy --quantile 0.05",
    )
    _add_team_arguments(parser)
    parser.add_argument("--quantile", type=float, help="share of the random executions to call unfair (0.05)")
    parser.add_argument("--episodes", type=int, dest="calibration_episodes", default=1000, help="how many (1000)")
    parser.set_defaults(func=_calibrate)


def _add_predictor_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "predictor",
        help="how well fairness can be predicted for a team: AUC",
        epilog="example: fairtest predictor --policy results/fairtest/RUN/policy --episodes 2500",
    )
    _add_team_arguments(parser)
    parser.add_argument("--episodes", type=int, default=2500, help="random executions to learn from (2500)")
    parser.set_defaults(func=_predictor)


def _add_team_arguments(parser: argparse.ArgumentParser, required: bool = True) -> None:
    parser.add_argument("--policy", type=Path, required=required, metavar="DIR", help="agent.th and policy.yaml")
    parser.add_argument("--seed", type=int, help="root seed")
    parser.add_argument("--preset", help="quick, paper or strict")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="any other setting")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _settings(args: argparse.Namespace) -> Settings:
    from epymarl_fairtest.config import parse_assignments, settings
    from epymarl_fairtest.host.checkpoint import load_record

    given = parse_assignments(args.set, {name: getattr(args, name, None) for name in NAMED})
    given.setdefault("allocation", load_record(args.policy).allocation)
    return settings(given)


def _warn(message: str) -> None:
    print(f"fairtest: {message}", file=sys.stderr)


def _run(args: argparse.Namespace) -> int:
    if not args.resume and not (args.policy and args.out):
        raise FairTestError("fairtest run needs --policy DIR and --out RUN, or --resume RUN.")
    if sys.stderr.isatty():
        _warn("loading the team")  # the imports take seconds
    return _resume(args) if args.resume else _begin(args)


def _begin(args: argparse.Namespace) -> int:
    from epymarl_fairtest.run import check_method
    from epymarl_fairtest.store.run import RunFolder
    from epymarl_fairtest.subject import saved_subject

    chosen = _settings(args)
    check_method(chosen)
    subject = saved_subject(args.policy, chosen.allocation)
    check_method(chosen, subject.task)
    command = " ".join(["fairtest", *sys.argv[1:]])
    return _execute(subject, chosen, RunFolder(Path(args.out)), chosen.seed or 0, command, args.json)


def _resume(args: argparse.Namespace) -> int:
    """The interrupted run again with its own settings: it ends as if nothing had happened."""
    from epymarl_fairtest.config import settings
    from epymarl_fairtest.store.run import RunFolder
    from epymarl_fairtest.subject import saved_subject

    folder = RunFolder.resume(args.resume, _warn)
    manifest = folder.manifest()
    chosen = settings(manifest["settings"])
    places = [folder.path / "policy", Path(manifest.get("policy", ""))]
    policy = args.policy or next((place for place in places if (place / "agent.th").is_file()), None)
    if policy is None:
        raise FairTestError(f"The team of {str(folder.path)!r} is not where it was; give its folder with --policy.")
    subject = saved_subject(policy, chosen.allocation)
    if subject.origin["policy_digest"] != manifest["policy_digest"]:
        raise FairTestError(
            f"The team in {str(policy)!r} is not the one that {str(folder.path)!r} tested (other weights)."
            " Give the right folder with --policy."
        )
    return _execute(subject, chosen, folder, manifest["seed"], manifest["command"], args.json)


def _execute(subject: Subject, chosen: Settings, folder: RunFolder, seed: int, command: str, as_json: bool) -> int:
    from epymarl_fairtest.run import run, stopped, summary_table
    from epymarl_fairtest.stopping import stoppable

    terminal = sys.stderr.isatty()
    try:
        with stoppable():
            summary = run(subject, chosen, folder, seed=seed, command=command, terminal=terminal, warn=_warn)
    except KeyboardInterrupt as stop:
        _warn(stopped(folder, chosen))
        return 128 + getattr(stop, "number", signal.SIGINT)
    except FairTestError as error:
        if not folder.path.exists():
            raise
        again = f"What was found before is kept; go on with: fairtest run --resume {shlex.quote(str(folder.path))}"
        raise FairTestError(f"{error} {again}") from error
    print(json.dumps(summary) if as_json else summary_table(summary, folder.path))
    return 0


def _calibrate(args: argparse.Namespace) -> int:
    from dataclasses import asdict, replace

    from epymarl_fairtest.ledger import Ledger
    from epymarl_fairtest.run import calibrate, make_engine
    from epymarl_fairtest.subject import saved_subject

    chosen = replace(_settings(args), theta="auto")
    subject = saved_subject(args.policy, chosen.allocation)
    found = calibrate(subject, chosen, make_engine(subject, chosen, _warn), chosen.seed or 0, Ledger())
    if args.json:
        print(json.dumps({**asdict(found), "index": chosen.index, "quantile": chosen.quantile}))
    else:
        print(
            f"theta = {found.theta:.4f}: {found.share:.1%} of {found.defined} random executions have an index"
            f" ({chosen.index}) of at most that; in {found.episodes - found.defined} more nobody received anything."
            f" The task's own threshold is {subject.task.theta:g}."
        )
    return 0


def _predictor(args: argparse.Namespace) -> int:
    from epymarl_fairtest.experiment.predictor import predictor_report
    from epymarl_fairtest.subject import saved_subject

    chosen = _settings(args)
    if args.episodes < 50:
        raise FairTestError(f"--episodes {args.episodes} is too few to cross-validate; it must be at least 50.")
    report = predictor_report(saved_subject(args.policy, chosen.allocation), chosen, args.episodes, _warn)
    print(json.dumps(report.as_dict()) if args.json else str(report))
    return 0
