"""The lock-step engine in several processes: the same bits, lost processes replaced, nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import assert_identical, policy_folder, some_tests

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.engine import crew
from epymarl_fairtest.engine.crew import Crew
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.engine.selection import real_engine
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.saved import saved_team

pytestmark = pytest.mark.skipif(not crew.can_fork(), reason="processes cannot be forked here")


@pytest.fixture
def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(crew, "SMALLEST", 4)
    return saved_team(policy_folder(tmp_path, "foraging", "gru", time_limit=6), "env")


def engine(team: Any, workers: int) -> Any:
    return real_engine(team, configure({"workers": workers, "epsilon": 0.3, "engine": "lockstep"}))


@pytest.fixture(autouse=True)
def nobody_left_behind() -> Iterator[None]:
    yield
    assert [child.name for child in multiprocessing.active_children() if child.name == "fairtest-crew"] == []


def test_the_bits_are_the_same_whatever_the_number_of_processes(team: Any) -> None:
    alone = engine(team, 1)
    assert type(alone) is Lockstep
    tests = some_tests("foraging", 10)
    expected = alone.execute(tests)
    middle = replayed(expected)
    for workers in (2, 3):
        several = engine(team, workers)
        assert isinstance(several, Crew)
        assert_identical(several.execute(tests), expected)
        assert_identical(several.execute(middle), alone.execute(middle))
        assert several.episodes == 20
        several.keeps_obs = False
        assert several.execute(tests).obs.shape[-1] == 0, "what is switched off later is known to all"
        several.close()


def replayed(episodes: Any) -> Any:
    """Tests that continue these episodes from their middle."""
    from epymarl_fairtest.core.episodes import Tests

    step = (episodes.length // 2).astype(np.int32)
    rows = np.arange(len(episodes))
    return Tests(
        root_seed=episodes.root_seed, stream=episodes.stream[::-1].copy(), shift=np.zeros_like(step), start_step=step,
        start_state=episodes.states[rows, step], operator=episodes.operator, parent=episodes.id, prefix=episodes,
    )  # fmt: skip


def test_a_lost_process_is_replaced_and_its_part_is_played_again(team: Any) -> None:
    tests = some_tests("foraging", 10)
    several = engine(team, 2)
    several.execute(tests)
    for member in several._members:
        os.kill(member.process.pid, signal.SIGKILL)
        member.process.join()
    assert_identical(several.execute(tests), engine(team, 1).execute(tests))
    several.close()


def test_tests_that_end_every_process_are_told(team: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    several = engine(team, 2)
    several._make_world = lambda: os._exit(1)
    with pytest.raises(FairTestError, match=r"lost 3 times.*workers=1"):
        several.execute(some_tests("foraging", 10))


@pytest.mark.parametrize(("error", "kind"), [(FairTestError, FairTestError), (ValueError, RuntimeError)])
def test_an_error_in_a_process_is_told_by_the_engine(team: Any, error: type, kind: type) -> None:
    def fails() -> Any:
        raise error("the world is not what it was")

    several = engine(team, 2)
    several._make_world = fails
    with pytest.raises(kind, match="the world is not what it was"):
        several.execute(some_tests("foraging", 10))


def test_ctrl_c_leaves_no_process_behind(team: Any) -> None:
    several = engine(team, 2)
    make = several._make_world

    def slow() -> Any:
        time.sleep(0.2)
        return make()

    several._make_world = slow
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        several.execute(some_tests("foraging", 200))
    assert several._members == []
