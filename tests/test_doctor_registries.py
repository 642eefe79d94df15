"""`fairtest doctor` lists what other packages add and FairTest leaves out: as warnings, each with its package."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from epymarl_fairtest.commands import doctor
from epymarl_fairtest.commands.doctor import Machine, examine, render
from epymarl_fairtest.core.indices import INDICES

BROKEN = "The method 'theirs' of the package 'foreign' (foreign:STRATEGY) cannot be imported (x); it is left out."


class Troubled(Machine):
    def refused_entry_points(self) -> list[str]:
        return [BROKEN]


def entry_points(machine: Machine) -> list[doctor.Finding]:
    return [finding for finding in examine(None, machine) if finding.name == "entry point"]


def test_an_entry_point_that_does_not_work_is_a_warning_with_a_remedy() -> None:
    (finding,) = entry_points(Troubled())
    assert finding.status == "warning"
    assert finding.detail == BROKEN
    assert finding.remedy == "update that package, or uninstall it"
    assert BROKEN in render([finding])


def test_where_no_package_adds_anything_nothing_is_said() -> None:
    assert not entry_points(Machine())


def test_the_problems_of_every_registry_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(doctor.REGISTRIES.values()) == {"INDICES", "TASKS", "STRATEGIES", "STEPS"}
    monkeypatch.setattr(INDICES, "problems", ["one"])
    assert Machine().refused_entry_points() == ["one"]


def test_a_missing_library_of_our_own_is_another_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(INDICES, "problems", ["one"])
    monkeypatch.setattr(doctor, "REGISTRIES", {"no_such_module": "STRATEGIES", **doctor.REGISTRIES})
    assert Machine().refused_entry_points() == ["one"]
    assert not logging.getLogger("fairtest").disabled


@pytest.mark.slow
def test_the_command_names_a_package_that_is_installed_and_broken(tmp_path: Path) -> None:
    info = tmp_path / "foreign-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[fairtest.tasks]\nmaze = foreign:MazeTask\n[fairtest.strategies]\nluck = foreign:nothing\n"
    )
    (tmp_path / "foreign.py").write_text("MazeTask = 'not a task'\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    environment.pop("EPYMARL_HOME", None)
    command = [sys.executable, "-W", "ignore", "-m", "epymarl_fairtest", "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    found = [finding for finding in json.loads(done.stdout) if finding["name"] == "entry point"]
    assert [finding["status"] for finding in found] == ["warning", "warning"]
    maze, luck = (finding["detail"] for finding in found)
    assert maze.startswith(
        "The task 'maze' of the package 'foreign' (foreign:MazeTask) is 'not a task', not a subclass"
    )
    assert luck.startswith("The method 'luck' of the package 'foreign' (foreign:nothing) cannot be imported (Attribute")
    assert "foreign" not in done.stderr, "nothing is said twice"
