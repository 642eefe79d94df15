"""docs/extending.md works as it stands: every file it shows, every command, its contract tests and its tables."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest

from epymarl_fairtest import commands
from epymarl_fairtest.campaign.steps import STEPS
from epymarl_fairtest.core.episodes import operator_code
from epymarl_fairtest.core.indices import INDICES
from epymarl_fairtest.core.ledger import PURPOSES
from epymarl_fairtest.core.registry import Registry
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.strategies import STRATEGIES
from epymarl_fairtest.tasks import TASKS
from epymarl_fairtest.tasks.contract import ABILITIES
from epymarl_fairtest.testing import save_random_team

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILES = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
RUN_NEARBY, RUN_ALLOCATED, RUN_HOOVER = (body.strip() for language, body in BLOCKS if language == "text")
(SCRIPT,) = (body for language, body in BLOCKS if language == "python" and body not in FILES.values())
REGISTRIES: dict[str, Registry[Any]] = {
    "fairtest.strategies": STRATEGIES,
    "fairtest.tasks": TASKS,
    "fairtest.indices": INDICES,
    "fairtest.steps": STEPS,
}
ENTRY_POINTS = {
    group: dict(re.findall(r'^(\w+) = "([\w.:]+)"$', lines, re.MULTILINE))
    for group, lines in re.findall(
        r'^\[project\.entry-points\."([\w.]+)"\]\n((?:\w.*\n)+)', FILES["pyproject.toml"], re.MULTILINE
    )
}
BERRIES, SPREAD = "my_world:Berries-v0", "epymarl_fairtest:mpe-spread-v0"


def write_package(folder: Path) -> Path:
    """The page's files, in `folder`."""
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The page's package on the path, not installed: what its entry points name, by name."""
    assert [*STRATEGIES, *STEPS]  # all purposes of our own are known before they are remembered
    folder, purposes = write_package(tmp_path_factory.mktemp("package")), dict(PURPOSES)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield {
            name: getattr(importlib.import_module(value.partition(":")[0]), value.partition(":")[2])
            for entries in ENTRY_POINTS.values()
            for name, value in entries.items()
        }
    gymnasium.registry.pop("Berries-v0", None)
    for name in [name for name in sys.modules if name.split(".")[0] in ("my_world", "test_my_world")]:
        del sys.modules[name]
    PURPOSES.clear()
    PURPOSES.update(purposes)


@pytest.fixture
def registered(package: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same, in the registries as long as the test lasts."""
    with ExitStack() as stack:
        for group, entries in ENTRY_POINTS.items():
            for name in entries:
                stack.enter_context(REGISTRIES[group].having(package[name]))
        yield package


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fairtest(line: str, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    program, *words = line.split()
    assert program == "fairtest"
    assert commands.main([*words, *more, "--set", "report=false", "--json"]) == 0
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    return summary


# --- the package --------------------------------------------------------------------------------------


def test_every_block_of_the_page_is_a_file_a_command_or_the_script() -> None:
    languages = [language for language, _ in BLOCKS]
    assert languages.count("python") == len([name for name in FILES if name.endswith(".py")]) + 1
    assert languages.count("toml") == 1
    assert languages.count("sh") == 1, "a training, which test_plugin.py does in other environments"
    assert set(languages) == {"python", "toml", "text", "sh"}


def test_every_registry_has_an_entry_point_on_the_page() -> None:
    assert ENTRY_POINTS.keys() == REGISTRIES.keys()
    assert {registry._group for registry in REGISTRIES.values()} == set(REGISTRIES)


def test_an_entry_point_has_the_name_of_what_it_names(package: dict[str, Any]) -> None:
    for name, entry in package.items():
        assert entry.name == name


def test_each_extension_is_one_file() -> None:
    """As the table at the top says: no file of the page serves two registries."""
    files = [value.partition(":")[0] for entries in ENTRY_POINTS.values() for value in entries.values()]
    assert len(set(files)) == len(files) == 4
    rows = re.findall(r"^\| \[(.+?)\]\(#.+?\) \| (.+?) \|", PAGE, re.MULTILINE)
    assert dict(rows) == {
        "an environment": "1 file",
        "a strategy": "1 file",
        "a task": "1 folder",
        "a fairness index": "1 file",
        "a step after the search": "1 file",
        "a kind of policy": "1 file",
        "an allocation": "1 function",
    }


# --- the strategy -------------------------------------------------------------------------------------


def test_the_shown_strategy_runs_with_its_option(
    registered: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_random_team(Path("RUN/policy"), SPREAD)
    summary = fairtest(RUN_NEARBY, capsys)
    assert (summary["method"], summary["task"]) == ("nearby", "spread")
    assert summary["ledger"]["execution"]["episodes"] == summary["executed_episodes"] == 200
    lines = Path("runs/1/journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["episodes"] for line in lines] == 5 * [40]


def test_the_shown_strategy_goes_where_unfair_episodes_began(
    registered: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its failures, after the first ones, lie nearer to an earlier one than those of Random do."""
    save_random_team(Path("RUN/policy"), SPREAD)
    fairtest(RUN_NEARBY, capsys)
    fairtest("fairtest run --policy RUN/policy --method random --budget 200 --set batch=40 --out runs/random", capsys)
    gaps = {name: gaps_to_the_first_failures(Path("runs") / name) for name in ("1", "random")}
    assert np.median(gaps["1"]) < 0.8 * np.median(gaps["random"])


def gaps_to_the_first_failures(run: Path) -> np.ndarray:
    starts = load_failures(run / "failures.npz").states[:, 0]
    first, later = starts[:10], starts[10:]
    assert len(later) > 10
    return np.linalg.norm(later[:, None] - first, axis=-1).min(axis=1)


def test_a_wrong_option_of_the_shown_strategy_is_refused(
    registered: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_random_team(Path("RUN/policy"), SPREAD)
    for wrong, message in (
        ("options.sampel=3", "Did you mean sample?"),
        ("options.batch=0", "whole number of at least 1"),
    ):
        assert commands.main([*RUN_NEARBY.split()[1:], "--set", wrong]) == 2
        assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_the_shown_strategy_works_in_the_shown_environment(
    registered: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_random_team(Path("RUN/policy"), BERRIES)
    summary = fairtest(RUN_NEARBY, capsys, "--set", "theta=0.95")
    assert summary["task"] == "berries"
    assert summary["failures"] > 0
    assert summary["executed_episodes"] == 200


# --- environment, task, allocation, index, step and policy --------------------------------------------


def test_the_shown_environment_is_tested_without_a_task_of_its_own(
    package: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_random_team(Path("RUN/policy"), BERRIES)
    summary = fairtest(RUN_ALLOCATED, capsys, "--set", "theta=0.95")
    assert (summary["task"], summary["engine"], summary["executed_episodes"]) == ("generic", "lockstep", 200)
    assert summary["failures"] > 5


@pytest.mark.slow
def test_ten_lines_more_are_perturbed_counted_replayed_and_explained(
    package: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line for line in FILES["my_world/garden.py"].splitlines() if line.strip()]
    assert len(lines) <= 10
    save_random_team(Path("RUN/policy"), "my_world:Garden-v0")
    more = [word for given in ("theta=0.95", "explain=2", "budget=200") for word in ("--set", given)]
    summary = fairtest("fairtest run --policy RUN/policy --out runs/9", capsys, *more)
    assert (summary["task"], summary["engine"]) == ("generic", "lockstep")
    assert 0 < summary["confirmed_failures"] == min(summary["failures"], 10)
    assert summary["explain"]["explained"] == 2
    assert 0 < summary["coverage"] < 1
    failures = load_failures(Path("runs/9/failures.npz"))
    late = failures.start_step > 0
    rows = np.flatnonzero(late)
    assert len(rows) > 0, "episodes are continued from their middle"
    assert (failures.operator[rows] == operator_code("mutation")).any()


def test_the_shown_allocation_is_what_fairness_is_judged_on(
    registered: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_random_team(Path("RUN/policy"), BERRIES)
    summary = fairtest(RUN_ALLOCATED, capsys, "--set", "theta=0.95")
    assert (summary["task"], summary["engine"]) == ("berries", "lockstep"), "its twin pays the environment's reward"
    rewards = load_failures(Path("runs/2/failures.npz")).rewards
    assert rewards[rewards != 0].min() >= 0.5
    assert (rewards == 0).any()


def test_the_shown_task_has_a_twin_that_proves_itself(
    registered: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_random_team(Path("RUN/policy"), BERRIES)
    summary = fairtest(RUN_HOOVER, capsys)
    assert (summary["task"], summary["engine"]) == ("berries", "twin")
    assert summary["ledger"]["proof"]["episodes"] > 0
    assert 0 < summary["confirmed_failures"] == min(summary["failures"], 10)


def test_the_shown_index_is_what_episodes_are_judged_by(
    registered: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_random_team(Path("RUN/policy"), BERRIES)
    assert fairtest(RUN_HOOVER, capsys)["index"] == "hoover"
    with np.load("runs/3/executions.npz") as executions:
        received, index = executions["received"], executions["index"]
    share = received / received.sum(axis=1, keepdims=True)
    assert np.allclose(index, 1 - np.abs(share - 1 / 2).sum(axis=1) / 2)


def test_the_shown_step_adds_its_column_and_its_key(
    registered: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_random_team(Path("RUN/policy"), BERRIES)
    summary = fairtest(RUN_HOOVER, capsys)
    with np.load("runs/3/failures.npz") as failures:
        again = failures["unfair_again"]
    assert len(again) == summary["failures"]
    assert summary["unfair_again"] == pytest.approx(again.mean())
    assert summary["ledger"]["again"]["episodes"] == 4 * summary["failures"]
    assert summary["executed_episodes"] == 200, "what a step executes is not charged"
    assert Path("runs/3/failures.csv").read_text().splitlines()[0].split(",").count("unfair_again") == 1
    (paragraph,) = registered["again"].section(summary)
    assert f"{again.mean():.0%}" in paragraph


def test_the_shown_policy_is_tested_from_python(
    registered: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    exec(compile(SCRIPT, "docs/extending.md", "exec"), names)
    assert names["result"].summary["executed_episodes"] == 200
    assert Path("worst.gif").read_bytes().startswith(b"GIF8")
    failures = load_failures(Path("runs/4/failures.npz"))
    assert len(failures) > 0
    running = failures.running
    assert np.allclose(failures.q[running].sum(axis=-1), 1, atol=1e-5), "logits are recorded as probabilities"


# --- its contract tests -------------------------------------------------------------------------------


def contract_tests() -> list[str]:
    return re.findall(r"^def (test_\w+)", FILES["test_my_world.py"], re.MULTILINE)


@pytest.fixture(scope="module")
def shown_tests(package: dict[str, Any]) -> ModuleType:
    return importlib.import_module("test_my_world")


@pytest.mark.parametrize("name", contract_tests())
def test_the_shown_contract_tests_pass(shown_tests: ModuleType, registered: dict[str, Any], name: str) -> None:
    getattr(shown_tests, name)()


def test_everything_the_page_adds_is_checked_by_its_tests() -> None:
    source = FILES["test_my_world.py"]
    for what in ("STRATEGY", "BerriesTask", "INDEX", "STEP", "Walkers"):
        assert len(re.findall(rf"\b{what}\b", source)) >= 2, what


# --- its tables ---------------------------------------------------------------------------------------


def rows(first: str) -> list[list[str]]:
    """The cells of the table whose first heading is `first`, without code marks."""
    table = re.search(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table is not None
    return [[cell.strip().strip("`") for cell in row.strip("|").split(" |")] for row in table.group(1).splitlines()]


def test_the_purposes_are_charged_as_the_page_says() -> None:
    shown = {purpose: (strict == "yes", paper == "yes") for purpose, strict, paper, _ in rows("purpose")}
    assert shown == {name: (PURPOSES[name].strict, PURPOSES[name].paper) for name in shown}
    others = set(PURPOSES) - set(shown) - {"again"}  # the page's own step
    assert others == {"calibration", "proof", *(step.purpose for step in STEPS.values())}, "those are not a strategy's"


def test_the_tasks_offer_what_the_page_says() -> None:
    shown = {name: (restorable == "yes", proposable == "yes") for name, restorable, proposable in rows("task")}
    assert shown == {name: (task.restorable, task.proposable) for name, task in TASKS.items()}
    assert set(ABILITIES) == {"restorable", "proposable"}


def test_what_the_page_says_tests_are_made_by_exists() -> None:
    made = [re.fullmatch(r"(\w+)` in `([\w/.]+)", how) for _, how, _ in rows("a test")]
    found = [match.groups() for match in made if match]
    assert len(found) == 4
    for name, file in found:
        assert f"def {name}(" in (ROOT / file).read_text()
