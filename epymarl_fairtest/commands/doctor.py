"""`fairtest doctor`: what on this machine would stop EPyMARL or FairTest, and what to do about it.

Looks, never changes. What it knows of the machine comes through `Machine`, what it knows of the checkout
from reading its files, so nothing of EPyMARL is imported.
"""

import argparse
import ast
import json
import logging
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from epymarl_fairtest.core.checkout import known_checkout, require_checkout
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.host import install, mpe2_bridge, smaclite_guard, suited

Status = Literal["ok", "warning", "problem"]

REGISTRIES = {
    "epymarl_fairtest.core.indices": "INDICES",
    "epymarl_fairtest.tasks": "TASKS",
    "epymarl_fairtest.strategies": "STRATEGIES",
    "epymarl_fairtest.campaign.steps": "STEPS",
}
_PROBE_SECONDS = 20.0  # an import takes less than one; a network drive may take its time


ORDER = 150


@dataclass(frozen=True)
class Finding:
    """A problem stops a run that FairTest's users start; a warning costs a feature or time."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


class Machine:
    """What this Python can import. A test stands another one in."""

    @property
    def python(self) -> tuple[int, int]:
        return sys.version_info[:2]

    def version(self, distribution: str) -> str | None:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            return None

    def has(self, module: str) -> bool:
        if module == "smaclite":
            return not smaclite_guard.is_missing()
        try:
            return find_spec(module) is not None
        except (ImportError, ValueError):
            return False

    def pettingzoo_has_mpe(self) -> bool:
        return mpe2_bridge.pettingzoo_has_mpe()

    def import_error(self, module: str) -> str | None:
        """The last line of what importing says in a fresh process; None if it works."""
        return _import_error(module)

    def refused_entry_points(self) -> list[str]:
        """What other packages add and FairTest leaves out, each with its package and the reason."""
        problems: list[str] = []
        log = logging.getLogger("fairtest")
        quiet, log.disabled = log.disabled, True  # they would be said twice
        try:
            for module, name in REGISTRIES.items():
                try:
                    registry = getattr(import_module(module), name)
                    len(registry)  # fills it
                except ImportError:  # a library of our own is missing, which has a finding of its own
                    continue
                problems += registry.problems
        finally:
            log.disabled = quiet
        return problems


@cache  # one probe per module and process
def _import_error(module: str) -> str | None:
    # The current folder is not on the path of a program that is started by its file name.
    code = f"import sys; sys.path = [p for p in sys.path if p]; import {module}"
    command = [sys.executable, "-W", "ignore", "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return f"importing {module} took longer than {_PROBE_SECONDS:.0f} s"
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]


def examine(checkout: Path | None, machine: Machine | None = None) -> list[Finding]:
    """Every known breakage, judged for this machine and, if given, this checkout."""
    machine = machine or Machine()
    if checkout is not None:
        checkout = require_checkout(checkout)
    return [
        *_about_machine(machine),
        *_about_entry_points(machine),
        *_about_mpe(machine, checkout),
        *_about_checkout(machine, checkout),
    ]


# --- the machine ------------------------------------------------------------------------------------


def _about_machine(machine: Machine) -> Iterator[Finding]:
    python = ".".join(map(str, machine.python))
    if (3, 10) <= machine.python <= (3, 12):
        yield Finding("python", "ok", python)
    else:
        detail = f"{python}; 3.10 to 3.12 are supported"
        yield Finding("python", "problem", detail, "make an environment with Python 3.11")
    yield _sacred(machine)
    for module, status, needed_for, remedy in (
        ("torch", "problem", "every policy", "pip install torch"),
        ("sklearn", "problem", "the predictor", "pip install scikit-learn"),
        ("scipy", "problem", "the predictor and all statistics", "pip install scipy"),
        ("moocore", "problem", "the selection", "pip install moocore"),
        ("matplotlib", "warning", "the run's page and all figures", "pip install matplotlib"),
        ("PIL", "warning", "the run's page and all replays that are drawn", "pip install pillow"),
        ("cloudpickle", "warning", "EPyMARL's parallel runner", "pip install cloudpickle"),
        ("lbforaging", "warning", "the foraging task (LBF)", "pip install lbforaging"),
        ("numba", "warning", "the fast engine; without it FairTest is slower", "pip install numba"),
    ):
        if machine.has(module):
            yield Finding(module, "ok", machine.version(module) or "installed")
        else:
            bad: Status = "problem" if status == "problem" else "warning"
            yield Finding(module, bad, f"not installed; needed for {needed_for}", remedy)
    protobuf = machine.version("protobuf")
    if machine.version("tensorboard-logger") is not None and _at_least(protobuf, 4):
        yield Finding(
            "tensorboard",
            "warning",
            f"use_tensorboard=True fails: tensorboard-logger does not work with protobuf {protobuf}",
            'pip install "protobuf<4", or keep use_tensorboard=False',
        )


def _sacred(machine: Machine) -> Finding:
    if not machine.has("sacred"):
        return Finding("sacred", "problem", "not installed", 'pip install sacred "setuptools<81"')
    version, error = machine.version("sacred"), machine.import_error("sacred")
    if error is None:
        return Finding("sacred", "ok", f"{version}, imports")
    setuptools = machine.version("setuptools")
    if setuptools is None or _at_least(setuptools, 81):
        there = f"setuptools {setuptools}" if setuptools else "no setuptools"
        return Finding(
            "sacred",
            "problem",
            f"{version} needs the pkg_resources of setuptools before 81; here: {there} ({error})",
            'pip install "setuptools<81"',
        )
    detail = f"{version} cannot be imported: {error}"
    return Finding("sacred", "problem", detail, "pip install --upgrade sacred")


def _about_entry_points(machine: Machine) -> Iterator[Finding]:
    for problem in machine.refused_entry_points():
        yield Finding("entry point", "warning", problem, "update that package, or uninstall it")


# --- MPE --------------------------------------------------------------------------------------------


def _about_mpe(machine: Machine, checkout: Path | None) -> Iterator[Finding]:
    zoo, mpe2 = machine.version("pettingzoo"), machine.version("mpe2")
    together = 'pip install "pettingzoo>=1.27" mpe2'
    if not machine.has("pettingzoo"):
        yield Finding("mpe", "warning", "pettingzoo is not installed; needed for spread and tag", together)
        return
    own = machine.pettingzoo_has_mpe()
    if machine.has("mpe2"):
        error = machine.import_error("mpe2.simple_spread_v3")
        if error is not None:
            yield Finding(
                "mpe2",
                "warning" if own else "problem",
                f"mpe2 {mpe2} does not work with pettingzoo {zoo}: {error}",
                together + (", or remove mpe2: pettingzoo holds MPE itself" if own else ""),
            )
            if not own:
                return
    elif not own:
        yield Finding("mpe", "problem", f"pettingzoo {zoo} no longer holds MPE, and mpe2 is not installed", together)
        return
    if own:
        yield Finding("mpe", "ok", f"pettingzoo {zoo} holds MPE")
    elif checkout is None:
        yield Finding("mpe", "ok", f"mpe2 {mpe2} with pettingzoo {zoo}")
    elif "mpe2" in _text(checkout, "src/envs/pz_wrapper.py"):
        yield Finding("mpe", "ok", f"mpe2 {mpe2} with pettingzoo {zoo}; the checkout knows it")
    else:
        yield Finding(
            "mpe",
            "problem",
            f"pz-mpe-... raises NameNotFound: pettingzoo {zoo} no longer holds MPE, and the checkout's "
            "src/envs/pz_wrapper.py does not look into mpe2",
            _either(checkout),
        )


# --- the checkout -----------------------------------------------------------------------------------


def _about_checkout(machine: Machine, checkout: Path | None) -> Iterator[Finding]:
    if checkout is None:
        yield Finding(
            "checkout",
            "warning",
            "no EPyMARL checkout is known, so none was examined",
            "fairtest install CHECKOUT, or set EPYMARL_HOME, or fairtest doctor CHECKOUT",
        )
        return
    why = suited.obstacle(checkout)
    if why is not None:
        yield Finding("checkout", "problem", f"{checkout} cannot be tested: {why}", "use EPyMARL 2.0 or later")
        return
    yield Finding("checkout", "ok", str(checkout))
    yield _hook(checkout)
    yield _smaclite(machine, checkout)
    if _renders_with_mode(_text(checkout, "src/envs/pz_wrapper.py")):
        yield Finding(
            "render",
            "warning",
            "evaluate=True render=True raises on MPE: src/envs/pz_wrapper.py passes a mode that render() "
            "does not take any more",
            "keep render=False",
        )
    if "parsed = []" in _text(checkout, "src/components/episode_buffer.py"):
        yield Finding(
            "indexing",
            "ok",
            "a repeated warning on non-tuple indexing in src/components/episode_buffer.py is harmless",
        )


def _hook(checkout: Path) -> Finding:
    report = install.state(checkout)
    if any(line.name == "src/main.py" and line.status == "applied" for line in report.lines):
        missing = [line.name for line in report.lines if line.status == "absent"]
        if missing:
            detail = f"fairtest=True works, but not everything is installed: {', '.join(missing)}"
            return Finding("hook", "warning", detail, f"fairtest install {_quoted(checkout)}")
        return Finding("hook", "ok", "fairtest=True works")
    fits = any(line.name == "src/main.py" and line.status == "absent" for line in report.lines)
    return Finding(
        "hook",
        "problem",
        "fairtest=True raises sacred's ConfigAddedError: FairTest's hook is not in src/main.py",
        _either(checkout) if fits else "start runs with: fairtest launch -- src/main.py ...",
    )


def _smaclite(machine: Machine, checkout: Path) -> Finding:
    if machine.has("smaclite"):
        return Finding("smaclite", "ok", machine.version("smaclite") or "installed")
    if not _imports_unguarded(_text(checkout, "src/envs/__init__.py"), "smaclite"):
        return Finding("smaclite", "ok", "not installed; the checkout runs without it")
    return Finding(
        "smaclite",
        "problem",
        "not installed, and src/envs/__init__.py imports it whatever environment is chosen: no run starts",
        _either(checkout) + ", or: pip install git+https://github.com/uoe-agents/smaclite.git",
    )


def _either(checkout: Path) -> str:
    return f"fairtest install {_quoted(checkout)}, or start runs with: fairtest launch -- src/main.py ..."


def _quoted(checkout: Path) -> str:
    return f'"{checkout}"' if " " in str(checkout) else str(checkout)


def _text(checkout: Path, name: str) -> str:
    try:
        return (checkout / name).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise FairTestError(
            f"Cannot read {checkout / name}: {error.strerror}. Make it readable for this user."
        ) from error


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def _imports_unguarded(source: str, name: str) -> bool:
    """Is something called `name…` imported at the top level, outside any try?"""
    for node in _parsed(source).body:
        if isinstance(node, ast.Import) and any(name in alias.name for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and name in (node.module or ""):
            return True
    return False


def _renders_with_mode(source: str) -> bool:
    """Is a `render` called with an argument? MPE's takes none."""
    calls = (node for node in ast.walk(_parsed(source)) if isinstance(node, ast.Call))
    return any(isinstance(c.func, ast.Attribute) and c.func.attr == "render" and c.args for c in calls)


def _at_least(version: str | None, *wanted: int) -> bool:
    if version is None:
        return False
    return tuple(int(number) for number in re.findall(r"\d+", version)[: len(wanted)]) >= wanted


# --- output -----------------------------------------------------------------------------------------


def render(findings: list[Finding]) -> str:
    """A verdict, then one row per finding with its remedy below, the worst first."""
    count = Counter(finding.status for finding in findings)
    if count["problem"]:
        verdict = f"{_several(count['problem'], 'problem')} to solve before FairTest can run with EPyMARL"
        verdict += f" ({_several(count['warning'], 'warning')})." if count["warning"] else "."
    elif count["warning"]:
        verdict = f"Ready to run, with {_several(count['warning'], 'warning')}."
    else:
        verdict = "Ready to run: no problem found."
    order = ("problem", "warning", "ok")
    width = max((len(finding.name) for finding in findings), default=0)
    rows = [verdict, ""]
    for finding in sorted(findings, key=lambda finding: order.index(finding.status)):
        rows.append(f"  {finding.status:<7}  {finding.name:<{width}}  {finding.detail}")
        if finding.remedy:
            rows.append(f"  {'':<7}  {'':<{width}}  -> {finding.remedy}")
    return "\n".join(rows)


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor",
        help="find what would stop EPyMARL or FairTest on this machine",
        description="Looks for every known breakage and names the remedy. Exit code 1 if there is a problem.",
        epilog="example:\n  fairtest doctor ~/epymarl",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkout", metavar="CHECKOUT", nargs="?", help="the EPyMARL folder (default: the one in use)")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(func=_run)


def _run(args: argparse.Namespace) -> int:
    findings = examine(Path(args.checkout) if args.checkout else known_checkout())
    print(json.dumps([asdict(f) for f in findings], indent=1) if args.json else render(findings))
    return int(any(finding.status == "problem" for finding in findings))
