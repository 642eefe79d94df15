"""`fairtest.repair`: the command's repair for notebooks, with exceptions instead of exits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import policy_folder
from test_repair import QUICK, SEARCH, fake, repair

import epymarl_fairtest as fairtest
from epymarl_fairtest.repair.document import read_repair
from epymarl_fairtest.study import backends

__all__ = ["fake"]  # a fixture
TINY: dict[str, Any] = {"executions": 120, "steps": 100, "weight": (1, 2), "seeds": 2, "jobs": 1}
SEARCHED: dict[str, Any] = {"method": "random", "budget": 40, "progress": False}


@pytest.mark.slow
def test_it_is_the_commands_repair_and_shows_itself(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    team = policy_folder(tmp_path / "team")
    done = fairtest.repair(team, tmp_path / "python", **TINY, **SEARCHED)
    repair("--policy", team, "--out", tmp_path / "typed", *QUICK, *SEARCH)
    typed, ours = read_repair(tmp_path / "typed"), read_repair(tmp_path / "python")
    times = ("training_cpu_seconds", "seed_cpu_seconds")
    for one in (*typed["repaired"], *typed["control"], *ours["repaired"], *ours["control"]):
        for name in times:
            one.pop(name, None)
    assert {name for name in typed if typed[name] != ours[name]} == {"command"}
    assert ours["command"].startswith("fairtest.repair(")
    assert done.verdict in done.sentence.lower()
    assert done.page is not None
    assert [str(one.relative_to(done.path)) for one in done.teams] == ["seed-0/repaired", "seed-1/repaired"]
    assert done.table["team"].tolist() == ["before", "control", "control", "repaired", "repaired"]
    shown = done._repr_html_()
    assert "data:image/png" in shown
    assert shown.count("<tr>") == 5
    assert done.sentence in str(done)
    assert done.verdict in repr(done).lower()
    again = fairtest.repair(team, tmp_path / "python", **TINY | {"weight": np.array([1.0, 2.0])}, **SEARCHED)
    assert again.document["repaired"] == done.document["repaired"], "nothing was trained again"


@pytest.mark.slow
def test_a_result_is_repaired_with_its_own_settings(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    result = fairtest.test(policy_folder(tmp_path / "team"), out=tmp_path / "run", explain=0, report=False, **SEARCHED)
    with pytest.raises(fairtest.FairTestError, match="budget: a RUN is repaired with its own settings"):
        fairtest.repair(result, tmp_path / "out", budget=3)
    assert not (tmp_path / "out").exists()
    done = fairtest.repair(result, tmp_path / "out", **TINY | {"seeds": [1]})
    assert [entry["seed"] for entry in done.document["repaired"]] == [1]


def test_the_function_is_not_hidden_by_the_folder_of_that_name() -> None:
    script = "import epymarl_fairtest as f, epymarl_fairtest.repair.plan, inspect; print(inspect.isfunction(f.repair))"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "True\n"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no team": ({"team": 3}, "the team: 3 is not allowed; give the path of a folder."),
    "no folder": ({"team": "nowhere"}, "nowhere"),
    "out": ({"out": None}, "out: None is not allowed"),
    "words": ({"steps": "many"}, "steps='many' is not allowed; give a whole number."),
    "truth": ({"executions": True}, "executions=True is not allowed"),
    "fraction": ({"steps": 1.5}, "steps=1.5 is not allowed; give a whole number."),
    "no steps": ({"steps": 0}, "steps=0 is not allowed"),
    "share": ({"share": 2}, "share=2 is not allowed; it must be a share from 0 to 1."),
    "loss": ({"max_loss": -1.0}, "max_loss=-1 is not allowed"),
    "welfare": ({"welfare": "all"}, "welfare='all' is not allowed; it must be None, gini, jain, min."),
    "weight": ({"weight": "x"}, "weight='x' is not allowed; give a number."),
    "negative weight": ({"weight": -1}, "weight=-1 is not allowed"),
    "learner": ({"learner": "lr=0.1"}, "learner='lr=0.1' is not allowed; name settings"),
    "seeds": ({"seeds": 0}, "seeds=0 is not allowed"),
    "twice": ({"seeds": [1, 1]}, "seeds=[1, 1] is not allowed"),
    "backend": ({"backend": "cloud"}, "backend='cloud' is not allowed"),
    "jobs": ({"jobs": 0}, "jobs=0 is not allowed"),
    "setting": ({"bugdet": 3}, "budget"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_an_exception_and_nothing_is_written(name: str, tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    given, expected = BAD[name]
    words = {"team": policy_folder(tmp_path / "team"), "out": tmp_path / "out"} | given
    with pytest.raises(fairtest.FairTestError) as error:
        fairtest.repair(**words)
    assert expected in str(error.value)
    assert "--" not in str(error.value), "words of the command line"
    assert not (tmp_path / "out").exists()


def test_a_cell_that_is_stopped_says_that_the_same_call_continues(tmp_path: Path, fake: pytest.MonkeyPatch) -> None:
    def stopped(work: Any, items: Any, place: Any) -> Iterator[Any]:
        yield items[0], work(items[0])
        raise KeyboardInterrupt

    fake.setattr(backends, "run_all", stopped)
    with pytest.raises(KeyboardInterrupt, match="the same call continues"):
        fairtest.repair(policy_folder(tmp_path / "team"), tmp_path / "out", **TINY, **SEARCHED)
    assert (tmp_path / "out" / "before" / "measured.npz").is_file()
    assert not (tmp_path / "out" / "repair.json").exists()
