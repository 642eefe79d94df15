"""A package that is not ours adds a strategy, a task, an index and a step by entry points, without an edit here.

The package is the one that docs/extending.md shows. It is installed into a temporary folder and used in fresh
processes, which know it only by its entry points. Bad entry points are named, and everything else works.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import TESTS
from test_extending import ENTRY_POINTS, REGISTRIES, write_package

from epymarl_fairtest.commands import main
from epymarl_fairtest.core.ledger import PURPOSES
from epymarl_fairtest.core.registry import Registry
from epymarl_fairtest.settings import fields_of

HOOVER = ["--set", "index=hoover", "--set", "theta=0.85"]
SEARCH = ["--method", "nearby", "--budget", "120", "--set", "options.batch=40", *HOOVER]
TEAM = ["--policy", "RUN/policy", "--set", "explain=2", "--set", "replay=100"]
COMMANDS = {
    "run": ["run", *TEAM, *SEARCH, "--out", "runs/1", "--json"],
    "search": ["run", *TEAM, "--method", "fairtest", "--budget", "300", "--set", "d=1", "--out", "runs/2", "--json"],
    "report": ["report", "runs/1"],
    "replay": ["replay", "runs/1", "--png", "--json"],
    "gate": ["gate", *TEAM, *SEARCH, "--max-failures", "1000", "--json"],
    "gate of a run": ["gate", "runs/1", "--max-failures", "0", "--json"],
    "gate without random executions": ["gate", *TEAM, *SEARCH, "--max-rate", "0.5"],
    "study": ["study", "rq1", "--policies", "RUN/policy", "--methods", "nearby", "random", "--seeds", "1", "--budget",
              "60", "--preset", "quick", "--set", "options.nearby.batch=20", *HOOVER, "--jobs", "1", "--out", "study",
              "--json"],
    "help of run": ["run", "--help"],
    "help of gate": ["gate", "--help"],
    "wrong method": ["run", *TEAM, "--method", "nerby", "--out", "runs/3"],
    "wrong option": ["run", *TEAM, *SEARCH, "--set", "options.sampel=3", "--out", "runs/4"],
    "wrong index": ["run", *TEAM, "--set", "index=hover", "--set", "theta=0.5", "--out", "runs/5"],
}  # fmt: skip
DRIVER = """
import contextlib, io, json, sys
from pathlib import Path
import support
from epymarl_fairtest.commands import main
from epymarl_fairtest.testing import save_random_team

support.in_small()
save_random_team(Path("RUN/policy"), "my_world:Berries-v0", time_limit=25)
done = {}
for name, words in json.loads(sys.argv[1]).items():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:  # --help
            code = end.code
    done[name] = [code, out.getvalue(), err.getvalue()]
print(json.dumps(done))
"""


def environment(*places: Path) -> dict[str, str]:
    """The path of this process, these places in front of it."""
    root = Path(__file__).resolve().parent.parent
    path = [*map(str, places), str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "COLUMNS": "100"}


def python(arguments: list[str], folder: Path, *places: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", *arguments]
    return subprocess.run(command, cwd=folder, env=environment(*places), capture_output=True, text=True, timeout=600)


# --- the package of docs/extending.md -----------------------------------------------------------------


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed: nowhere but on the path of a few processes."""
    source, target = write_package(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("installed")
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--no-index"]
    done = python(["-m", "pip", "install", *quiet, "--target", str(target), str(source)], source)
    assert done.returncode == 0, done.stderr
    assert (target / "my_world-1.0.dist-info" / "entry_points.txt").is_file()
    return target


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def commands(installed: Path, folder: Path) -> dict[str, tuple[int, str, str]]:
    """Every command in one fresh process: code, output, errors."""
    done = python(["-c", DRIVER, json.dumps(COMMANDS)], folder, installed, TESTS)
    assert done.returncode == 0, done.stderr
    results: dict[str, tuple[int, str, str]] = json.loads(done.stdout.splitlines()[-1])
    return results


def succeeded(commands: dict[str, Any], name: str) -> Any:
    code, out, err = commands[name]
    assert code == 0, err
    return json.loads(out) if "--json" in COMMANDS[name] else out


@pytest.mark.slow
def test_run_uses_its_strategy_its_task_its_twin_its_index_and_its_step(commands: dict[str, Any], folder: Path) -> None:
    summary = succeeded(commands, "run")
    assert {name: summary[name] for name in ("method", "task", "engine", "index", "executed_episodes")} == {
        "method": "nearby", "task": "berries", "engine": "twin", "index": "hoover", "executed_episodes": 120,
    }  # fmt: skip
    assert summary["confirmed_failures"] == summary["failures"] > 0
    assert 0 <= summary["unfair_again"] <= 1
    assert summary["ledger"]["again"]["episodes"] == 4 * summary["failures"]
    settings = json.loads((folder / "runs/1/manifest.json").read_text())["settings"]
    assert settings["options"] == {"batch": 40, "sample": 10}


@pytest.mark.slow
def test_our_own_search_works_in_its_task(commands: dict[str, Any]) -> None:
    """Mutants and splices need its write, observe and perturb."""
    summary = succeeded(commands, "search")
    assert (summary["task"], summary["engine"]) == ("berries", "twin")
    assert summary["ledger"]["mutant"]["episodes"] > 0
    assert summary["unstable_failures"] == 0


@pytest.mark.slow
def test_the_page_has_its_words_and_its_pictures(commands: dict[str, Any], folder: Path) -> None:
    assert succeeded(commands, "report").strip() == "runs/1/report/index.html"
    page = (folder / "runs/1/report/index.html").read_text(encoding="utf-8")
    assert "The target is the bush." in page
    assert "1 − Hoover" in page
    assert "nearby" in page


@pytest.mark.slow
def test_replay_executes_and_draws_its_failures(commands: dict[str, Any], folder: Path) -> None:
    done = succeeded(commands, "replay")
    assert done["agree"]
    assert len(done["files"]) == len(done["replays"]) > 0
    assert all((folder / file).read_bytes().startswith(b"\x89PNG") for file in done["files"])


@pytest.mark.slow
def test_gate_judges_by_its_strategy_and_its_index(commands: dict[str, Any]) -> None:
    assert succeeded(commands, "gate")["passed"]
    code, out, _ = commands["gate of a run"]
    assert (code, json.loads(out)["passed"]) == (1, False)
    code, out, _ = commands["gate without random executions"]  # natural ones are made for it
    assert code == 0
    assert "of 20 random executions" in out


@pytest.mark.slow
def test_study_compares_it_with_ours(commands: dict[str, Any], folder: Path) -> None:
    done = succeeded(commands, "study")
    assert not done["failed"]
    assert {row["variant"] for row in done["rows"]} == {"nearby", "random"}
    tables = (folder / "study/tables.md").read_text(encoding="utf-8")
    assert "| Nearby" in tables


@pytest.mark.slow
@pytest.mark.parametrize("name", ["help of run", "help of gate"])
def test_help_lists_the_method_and_its_options(commands: dict[str, Any], name: str) -> None:
    text = " ".join(succeeded(commands, name).split())
    assert "nearby starts near the starts of unfair episodes batch, sample" in text


@pytest.mark.slow
def test_wrong_input_is_answered_with_its_names(commands: dict[str, Any]) -> None:
    for name, message in (
        ("wrong method", "Did you mean nearby?"),
        ("wrong option", "Did you mean sample?"),
        ("wrong index", "hoover"),
    ):
        code, _, err = commands[name]
        assert code == 2
        assert message in err


@pytest.mark.slow
def test_it_passes_the_contract_tests_in_a_process_of_its_own(installed: Path, tmp_path: Path) -> None:
    write_package(tmp_path / "source")
    (tmp_path / "test_my_world.py").write_text((tmp_path / "source" / "test_my_world.py").read_text())
    done = python(["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_world.py"], tmp_path, installed)
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


# --- bad entry points ---------------------------------------------------------------------------------

BAD = """
from dataclasses import dataclass

from epymarl_fairtest.campaign.steps.contract import Outcome, Step
from epymarl_fairtest.core.indices.contract import Index
from epymarl_fairtest.settings import setting, whole
from epymarl_fairtest.strategies import STRATEGIES
from epymarl_fairtest.strategies.contract import Strategy
from epymarl_fairtest.tasks.contract import Task

KNOWN = list(STRATEGIES)  # looks at the registry that is just being filled


def search(context):
    return
    yield


def step(context):
    return Outcome()
    yield


class Good(Task):
    name, theta, restorable, distinct_distance = "good", 0.5, False, 0.1

    @classmethod
    def recognises(cls, env):
        return False

    def __init__(self, env):
        pass

    def read(self, env):
        return None

    def positions(self, states):
        return states


class Twice(Good):
    name = "spread"


class Lacking(Task):
    name, theta = "lacking", 0.5


@dataclass(frozen=True)
class Loose:
    size: int = 3


@dataclass(frozen=True)
class Clashing:
    budget: int = setting(whole(1), "a setting of all methods", 3, flat=True)


@dataclass(frozen=True)
class Required:
    size: int = setting(whole(1), "what nobody knows")


good_strategy = Strategy("good", "Good", search)
good_index = Index("good", "Good", lambda x: x[..., 0])
good_step = Step("good", "doing good", "replay", step)
twice_strategy = Strategy("random", "Another random", search)
twice_index = Index("jfi", "Another index", lambda x: x[..., 0])
twice_step = Step("replay", "replaying", "replay", step)
lacking_strategy = Strategy("lacking", "", None)
lacking_index = Index("lacking", "Lacking", None)
lacking_step = Step("lacking", "lacking", "replay", None)
unnamed = Strategy("not a word", "Unnamed", search)
loose = Strategy("loose", "Loose", search, Loose)
clashing = Strategy("clashing", "Clashing", search, Clashing)
required = Strategy("required", "Required", search, Required)
needy = Strategy("needy", "Needy", search, needs=("magic",))
sentence = Strategy("sentence", "Sentence", search, random="execution")
disordered = Strategy("disordered", "Disordered", search, order="first")
"""
BREAKING = {
    "bad_import": "import no_such_module_anywhere",
    "bad_exit": "raise SystemExit(3)",
    "bad_purpose": "from epymarl_fairtest.core.ledger import purpose\nSTRATEGY = purpose('execution', 'for nothing')",
}
EVERYWHERE = {  # entry point -> what it names, what is said
    "broken": ("bad_import:x", "cannot be imported (ModuleNotFoundError: No module named 'no_such_module_anywhere')"),
    "leaving": ("bad_exit:x", "cannot be imported (SystemExit: 3)"),
    "nothing": ("bad_parts:nothing", "cannot be imported (AttributeError"),
    "nowhere": ("no_such_package:x", "cannot be imported (ModuleNotFoundError"),
    "text": ("bad_parts:__name__", "not "),
}
PARTS: dict[str, dict[str, tuple[str, str]]] = {
    "fairtest.strategies": {
        "good": ("bad_parts:good_strategy", ""),
        "twice": ("bad_parts:twice_strategy", "is called 'random', and there is a method of that name already"),
        "lacking": ("bad_parts:lacking_strategy", "lacks label, search"),
        "unnamed": ("bad_parts:unnamed", "lacks name"),
        "loose": ("bad_parts:loose", "has the option 'size' without a rule or a default"),
        "required": ("bad_parts:required", "has the option 'size' without a rule or a default"),
        "clashing": ("bad_parts:clashing", "has the flat option 'budget', which is the name of a setting"),
        "needy": ("bad_parts:needy", "lacks needs"),
        "sentence": ("bad_parts:sentence", "lacks random"),
        "disordered": ("bad_parts:disordered", "has the order 'first', which is not a whole number"),
        "purpose": ("bad_purpose:STRATEGY", "cannot be imported (ValueError: the purpose 'execution' is known already"),
    },
    "fairtest.tasks": {
        "good": ("bad_parts:Good", ""),
        "twice": ("bad_parts:Twice", "is called 'spread', and there is a task of that name already"),
        "lacking": ("bad_parts:Lacking", "lacks restorable, distinct_distance, __init__, positions, read, recognises"),
    },
    "fairtest.indices": {
        "good": ("bad_parts:good_index", ""),
        "twice": ("bad_parts:twice_index", "is called 'jfi', and there is a fairness index of that name already"),
        "lacking": ("bad_parts:lacking_index", "lacks of"),
    },
    "fairtest.steps": {
        "good": ("bad_parts:good_step", ""),
        "twice": ("bad_parts:twice_step", "is called 'replay', and there is a step of that name already"),
        "lacking": ("bad_parts:lacking_step", "lacks run"),
    },
}


def write_bad_package(folder: Path) -> Path:
    """Modules and a dist-info by hand: what pip would leave behind."""
    (folder / "bad_parts.py").write_text(BAD)
    for name, content in BREAKING.items():
        (folder / f"{name}.py").write_text(content)
    info = folder / "bad_company-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-company\nVersion: 1.0\n")
    groups = (
        "\n".join([f"[{group}]", *(f"{name} = {value}" for name, (value, _) in {**EVERYWHERE, **parts}.items())])
        for group, parts in PARTS.items()
    )
    (info / "entry_points.txt").write_text("\n\n".join(groups) + "\n")
    return folder


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bad_package(tmp_path_factory.mktemp("bad"))


@pytest.fixture
def fresh(bad: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Registry[Any]]]:
    """A registry as a new process would fill it, with the bad package on the path."""
    assert all(len(known) for known in REGISTRIES.values()), "filled before the bad package is on the path"
    monkeypatch.syspath_prepend(bad)
    purposes = dict(PURPOSES)

    def registry(group: str) -> Registry[Any]:
        known = REGISTRIES[group]
        return Registry(
            known._what, package=known._package, attribute=known._attribute, group=group, complaint=known._complaint
        )

    yield registry
    for name in ["bad_parts", *BREAKING]:
        sys.modules.pop(name, None)
    assert purposes == PURPOSES
    importlib.invalidate_caches()


def test_every_registry_is_tried_with_bad_entry_points() -> None:
    assert PARTS.keys() == REGISTRIES.keys() == ENTRY_POINTS.keys()


@pytest.mark.parametrize("group", REGISTRIES)
def test_a_bad_entry_point_is_named_with_its_package_and_left_out(
    group: str, fresh: Callable[[str], Registry[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "fairtest"):
        registry = fresh(group)
        names = list(registry)
    expected = {**EVERYWHERE, **PARTS[group]}
    for name, (value, message) in expected.items():
        if not message:
            continue
        (problem,) = (one for one in registry.problems if f" {name!r} of the package" in one)
        assert "of the package 'bad-company'" in problem
        assert f"({value})" in problem
        assert message in problem
        assert problem.endswith("it is left out.")
        assert problem in caplog.messages
    assert len(registry.problems) == len(expected) - 1
    assert set(names) == {*REGISTRIES[group], "good"}, "everything else is there"


@pytest.mark.parametrize("group", REGISTRIES)
def test_the_entries_of_our_own_stay_ours(group: str, fresh: Callable[[str], Registry[Any]]) -> None:
    registry = fresh(group)
    assert all(registry[name] is entry for name, entry in REGISTRIES[group].items())


def test_a_task_of_another_package_is_asked_before_the_one_that_takes_everything(
    fresh: Callable[[str], Registry[Any]],
) -> None:
    names = list(fresh("fairtest.tasks"))
    assert names.index("good") < names.index("generic") == len(names) - 1


def test_who_asks_for_what_was_left_out_is_told_why(fresh: Callable[[str], Registry[Any]]) -> None:
    registry = fresh("fairtest.strategies")
    with pytest.raises(Exception, match="'lacking' of the package 'bad-company'"):
        registry.named("lacking", "--method lacking")


@pytest.mark.slow
def test_everything_else_works_beside_a_bad_package(bad: Path, tmp_path: Path) -> None:
    program = (
        "from pathlib import Path\nfrom epymarl_fairtest.commands import main\n"
        "from epymarl_fairtest.testing import save_random_team\n"
        "save_random_team(Path('team'), 'epymarl_fairtest:mpe-spread-v0')\n"
        "print(main('run --policy team --method random --budget 20 --set report=false --out run --json'.split()))"
    )
    done = python(["-c", program], tmp_path, bad)
    assert done.stdout.splitlines()[-1] == "0", done.stderr
    assert "'broken' of the package 'bad-company'" in done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["task"], summary["executed_episodes"]) == ("spread", 20)


# --- the help of our own ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "gate"])
def test_help_lists_every_method_with_its_options(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = " ".join(capsys.readouterr().out.partition("methods, and the settings")[2].split())
    for name, strategy in REGISTRIES["fairtest.strategies"].items():
        assert f"{name} {strategy.doc} {', '.join(fields_of(strategy.options))}" in text


@pytest.mark.slow
def test_help_is_quick(tmp_path: Path) -> None:
    """It looks at every strategy, and must not wait for the libraries that some of them use."""
    program = (
        "import sys\nfrom epymarl_fairtest.commands import main\n"
        "try: main(['run', '--help'])\nexcept SystemExit: print(*sys.modules)"
    )
    loaded = {name.split(".")[0] for name in python(["-c", program], tmp_path).stdout.splitlines()[-1].split()}
    assert "epymarl_fairtest" in loaded
    assert not loaded & {"torch", "sklearn", "pandas", "matplotlib", "ot"}
