"""docs/extending.md works as it stands: its strategy, its environment, its allocation, its tables."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import policy_folder
from test_docs import ROOT, blocks

from epymarl_fairtest import commands as cli
from epymarl_fairtest.core.ledger import CHARGED_PAPER, CHARGED_STRICT, PURPOSES
from epymarl_fairtest.store.failures import load_failures
from epymarl_fairtest.strategies import STRATEGIES
from epymarl_fairtest.strategies.contract import Context, Method, Strategy
from epymarl_fairtest.tasks import TASKS
from epymarl_fairtest.tasks.contract import ABILITIES

PAGE = ROOT / "docs" / "extending.md"
STRATEGY, REGISTRATION, WORLD = blocks(PAGE, "python")
RUN_NEARBY, RUN_ALLOCATED = (" ".join(block.split()) for block in blocks(PAGE, "text"))


def never(context: Context) -> Strategy:
    raise AssertionError("the page's line should have replaced it")
    yield


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The page's strategy, registered by the page's line; the registry is as before when the test ends."""
    monkeypatch.setitem(STRATEGIES, "nearby", Method(never))
    names: dict[str, Any] = {"__name__": "nearby"}
    monkeypatch.setitem(sys.modules, "nearby", type(sys)("nearby"))  # where a dataclass looks itself up
    for block in (STRATEGY, REGISTRATION):
        exec(compile(block, "docs/extending.md", "exec"), names)
    return names


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in, with the page's module in it."""
    (tmp_path / "my_world.py").write_text(WORLD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    import gymnasium

    gymnasium.registry.pop("Berries-v0", None)
    sys.modules.pop("my_world", None)


def fairtest(line: str, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    program, *words = line.split()
    assert program == "fairtest"
    assert cli.main([*words, *more, "--json"]) == 0
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    return summary


def test_the_shown_strategy_runs_with_its_option(
    shown: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy_folder(Path("RUN/policy"), time_limit=8)
    summary = fairtest(RUN_NEARBY, capsys)
    assert (summary["method"], summary["task"]) == ("nearby", "spread")
    assert summary["ledger"]["execution"]["episodes"] == summary["executed_episodes"] == 200
    lines = Path("runs/1/journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["episodes"] for line in lines] == 5 * [40]


def test_the_shown_strategy_goes_where_unfair_episodes_began(
    shown: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its failures, after the first batch, lie nearer to an earlier one than those of Random do."""
    policy_folder(Path("RUN/policy"), time_limit=8)
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
    shown: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy_folder(Path("RUN/policy"))
    for wrong, told in (
        ("options.sampel=3", "Did you mean sample?"),
        ("options.batch=0", "whole number of at least 1"),
    ):
        assert cli.main([*RUN_NEARBY.split()[1:], "--set", wrong]) == 2
        assert told in capsys.readouterr().err
    assert not Path("runs").exists()


def berry_pickers(folder: Path) -> None:
    policy_folder(folder, key="my_world:Berries-v0", time_limit=25, n_agents=2, n_actions=2, obs_size=2)


def test_the_shown_environment_is_tested_with_the_shown_allocation(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    berry_pickers(Path("RUN/policy"))
    summary = fairtest(RUN_ALLOCATED, capsys, "--set", "theta=0.999")
    assert summary["task"] == "generic"
    assert summary["executed_episodes"] == 200
    failures = load_failures(Path("runs/2/failures.npz"))
    assert len(failures) > 5
    assert failures.states.shape[-1] == 4  # the observations, as last_obs remembers them
    paid = failures.rewards[failures.rewards != 0]
    assert paid.min() >= 0.1
    assert (failures.rewards == 0).any()


def test_the_shown_strategy_works_in_the_shown_environment(
    shown: dict[str, Any], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    berry_pickers(Path("RUN/policy"))
    summary = fairtest(RUN_NEARBY, capsys, "--set", "theta=0.999")
    assert summary["failures"] > 0
    assert summary["executed_episodes"] == 200


def rows(first: str) -> list[list[str]]:
    """The cells of the table whose first heading is `first`, without code marks."""
    table = re.search(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert table is not None
    return [[cell.strip().strip("`") for cell in row.strip("|").split(" |")] for row in table.group(1).splitlines()]


def test_the_purposes_are_charged_as_the_page_says() -> None:
    told = {purpose: (strict == "yes", paper == "yes") for purpose, strict, paper, _ in rows("purpose")}
    assert told == {purpose: (purpose in CHARGED_STRICT, purpose in CHARGED_PAPER) for purpose in told}
    assert set(told) == set(PURPOSES) - {"calibration", "proof", "replay"}, "those are not a strategy's"


def test_the_tasks_offer_what_the_page_says() -> None:
    told = {name: (restorable == "yes", proposable == "yes") for name, restorable, proposable in rows("task")}
    assert told == {name: (task.restorable, task.proposable) for name, task in TASKS.items()}
    assert set(ABILITIES) == {"restorable", "proposable"}


def test_what_the_page_says_tests_are_made_by_exists() -> None:
    made = [re.fullmatch(r"(\w+)` in `([\w/.]+)", how) for _, how, _ in rows("a test")]
    found = [match.groups() for match in made if match]
    assert len(found) == 4
    for name, file in found:
        assert f"def {name}(" in (ROOT / file).read_text()
