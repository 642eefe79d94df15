"""What benchmarks.effect and benchmarks.genetic run: rows that exist, parts that are taken away, honest counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import policy_folder

from benchmarks.ablations import PARTS, search
from benchmarks.effect import TABLES, Table
from benchmarks.genetic import only_genetic
from epymarl_fairtest.commands import main as fairtest
from epymarl_fairtest.store.finished import FinishedRun, read_run
from epymarl_fairtest.strategies import STRATEGIES, configure
from epymarl_fairtest.team.saved import saved_team

SMALL = ("theta=0.9", "options.initial=40", "options.least_looks=200", "replay=0", "report=False", "random_team=0")


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return policy_folder(tmp_path_factory.mktemp("policies") / "team", "spread", "mlp", time_limit=8)


def executed(team: Path, out: Path, *settings: str) -> FinishedRun:
    words = [f"--set={setting}" for setting in (*SMALL, *settings)]
    assert fairtest(["run", f"--policy={team}", "--method=scout", "--budget=200", f"--out={out}", *words]) == 0
    return read_run(out, "executions.npz")


@pytest.mark.parametrize(
    ("table", "row"), [(table, row) for tables in TABLES.values() for table in tables for row in table.rows]
)
def test_every_row_has_settings_that_exist(table: Table, row: str) -> None:
    values = {**table.common, **table.rows[row]}
    without = values.pop("without", None)
    assert without is None or without in PARTS
    options = {name.removeprefix("options."): values.pop(name) for name in list(values) if name.startswith("options.")}
    configure({**values, "options": options})


@pytest.mark.slow
def test_scout_without_a_part_is_another_search_that_spends_the_same(team: Path, tmp_path: Path) -> None:
    whole = executed(team, tmp_path / "whole")
    found = {"whole": whole.executions["received"]}
    for part, lookout in PARTS.items():
        entry = replace(STRATEGIES["scout"], search=lambda context, of=lookout: search(of, context))
        with STRATEGIES.having(entry):
            found[part] = executed(team, tmp_path / part, "options.least_quota=0.0").executions["received"]
    assert {len(received) for received in found.values()} == {200}
    assert len({received.tobytes() for received in found.values()}) == len(found)
    first = {received[:40].tobytes() for received in found.values()}
    assert len(first) == 1, "all begin with the same random executions"


def test_a_search_without_a_genetic_part_has_no_failures_of_it(team: Path, tmp_path: Path) -> None:
    run = executed(team, tmp_path / "run")
    assert run.summary["failures"] > 0
    assert only_genetic(run.path, saved_team(team, "env").task) == (0, 0)


def test_failures_of_the_genetic_part_alone_are_those_that_are_far_from_all_others(team: Path, tmp_path: Path) -> None:
    words = [
        f"--set={name}" for name in ("theta=0.9", "pool=24", "offspring=20", "predictor_episodes=16", "d=1", "replay=0")
    ]
    out = tmp_path / "run"
    assert fairtest(["run", f"--policy={team}", "--preset=strict", "--budget=250", f"--out={out}", *words]) == 0
    task = saved_team(team, "env").task
    packed, strict = only_genetic(out, task)
    rows = read_run(out, "executions.npz").executions
    bred = np.isin(rows["operator"], ("mutation", "crossover"))
    assert 0 <= strict <= packed <= int(bred.sum())
    assert packed > 0
