"""Hosts that are not quite EPyMARL, and what a host's user sees: forks are served or refused, the result comes last."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sacred import Experiment
from sacred.observers import FileStorageObserver

from epymarl_fairtest.campaign import observers
from epymarl_fairtest.campaign.observers import Progress, duration
from epymarl_fairtest.commands import main
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.host import attach, console
from epymarl_fairtest.host.aside import PluginError
from epymarl_fairtest.host.launch import launch
from epymarl_fairtest.host.recording import Recording
from epymarl_fairtest.host.runner import fairtest_runner
from epymarl_fairtest.host.sacred_log import sacred_folder, storage_folder
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.checkpoint import network_of
from epymarl_fairtest.team.sample import TrainingSample

# --- the console --------------------------------------------------------------------------------------


@pytest.fixture
def levels() -> Any:
    """Every logger as it was, afterwards."""
    loggers = [logging.getLogger(), *(logging.getLogger(name) for name in console.CHATTY)]
    before = [log.level for log in loggers]
    yield
    for log, level in zip(loggers, before, strict=True):
        log.setLevel(level)


def test_libraries_are_quiet_in_a_host_that_logs_everything(levels: None, caplog: pytest.LogCaptureFixture) -> None:
    for name in console.CHATTY:
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.getLogger("PIL").setLevel(logging.INFO)  # the user's own choice
    logging.getLogger().setLevel(logging.DEBUG)
    console.quieten()
    logging.getLogger("numba.core.ssa").debug("a line per instruction")
    logging.getLogger("numba.core.ssa").warning("something is wrong")
    logging.getLogger("PIL.PngImagePlugin").info("wished for")
    logging.getLogger("my_main").debug("the host's own")
    assert caplog.messages == ["something is wrong", "wished for", "the host's own"]


@pytest.fixture
def sacred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Experiment:
    """An experiment with FairTest attached, as a host would have made it; nothing stays attached."""
    monkeypatch.setattr(Experiment, "run_commandline", Experiment.run_commandline)
    monkeypatch.setattr(attach, "_reached", [])
    attach.activate()
    experiment = Experiment("host", base_dir=str(tmp_path), save_git_info=False)
    experiment.observers.append(FileStorageObserver(str(tmp_path / "sacred")))
    experiment.add_config({"env_args": {}, "runner": "episode"})
    return experiment


def test_the_result_comes_after_the_hosts_last_words(sacred: Experiment, capfd: pytest.CaptureFixture[str]) -> None:
    @sacred.main
    def host() -> None:
        console.say_last("the result")
        print("Exiting script")

    sacred.run_commandline(["main.py"])
    assert capfd.readouterr().out.splitlines()[-2:] == ["Exiting script", "the result"]
    console.say_last("nobody waits")
    assert capfd.readouterr().out == "nobody waits\n"


def test_a_test_that_is_stopped_leaves_a_completed_training_and_the_exit_code_of_the_signal(
    sacred: Experiment, capfd: pytest.CaptureFixture[str]
) -> None:
    @sacred.main
    def host() -> None:
        console.say_last("how to resume")
        console.exit_as_stopped(signal.SIGINT)
        print("Exiting script")

    with pytest.raises(SystemExit) as ended:
        sacred.run_commandline(["main.py"])
    assert ended.value.code == 128 + signal.SIGINT
    assert sacred.current_run is not None
    assert sacred.current_run.status == "COMPLETED"
    said = capfd.readouterr()
    assert said.out.splitlines()[-1] == "how to resume"
    assert "Traceback" not in said.err


def test_the_folder_of_the_sacred_run_is_found_again_and_nothing_else_is_taken_for_it(
    sacred: Experiment, tmp_path: Path
) -> None:
    found: list[Any] = []

    @sacred.main
    def host(_run: Any) -> None:
        found.append(storage_folder(SimpleNamespace(_run_obj=_run)))

    sacred.run_commandline(["main.py", "with", "fairtest=True"])
    folder, run = tmp_path / "sacred" / "1", tmp_path / "run"
    run.mkdir()
    assert found == [folder]
    assert sacred_folder(run, {"sacred": "../sacred/1"}) == folder
    (tmp_path / "link").symlink_to(folder)
    for other in ("..", "../link", "../nowhere", "", 5, None):
        assert sacred_folder(run, {"sacred": other}) is None
    assert sacred_folder(run, {}) is None
    assert storage_folder(SimpleNamespace()) is None
    (folder / "config.json").write_text('{"fairtest": false}')
    assert sacred_folder(run, {"sacred": "../sacred/1"}) is None


def test_without_a_terminal_a_line_comes_every_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = SimpleNamespace(now=0.0), list[str]()
    monkeypatch.setattr(observers.time, "monotonic", lambda: clock.now)
    settings = configure({"method": "random", "budget": 1000})
    progress = Progress(settings, terminal=False, say=said.append)
    progress.searching(settings)
    for second in range(1, 101):
        clock.now = float(second)
        progress.executed(second * 5, second)
    progress.doing("replaying")
    clock.now = 200.0
    progress.doing("drawing")
    assert said == [
        "FairTest: 150 of 1000 episodes, 30 unfair; about 3 min left.",
        "FairTest: 300 of 1000 episodes, 60 unfair; about 2 min left.",
        "FairTest: 450 of 1000 episodes, 90 unfair; about 2 min left.",
        "FairTest: drawing.",
    ]
    for quiet in ({"terminal": True}, {"terminal": False}):
        silent = Progress(configure({"progress": False}), say=said.append, **quiet)
        clock.now += 100
        silent.executed(1, 1)
    assert len(said) == 4


@pytest.mark.parametrize(("seconds", "words"), [(0, "5 s"), (41, "40 s"), (130, "2 min"), (7300, "2.0 h")])
def test_a_duration_is_no_more_exact_than_it_is_known(seconds: float, words: str) -> None:
    assert duration(seconds) == words


# --- forks --------------------------------------------------------------------------------------------


def arguments(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(env_args={}, **more)


LOGGER = SimpleNamespace(console_logger=logging.getLogger("fork"))


class Swapped:
    def __init__(self, logger: Any, args: Any, main_env: Any = None) -> None:
        self.made = logger, args, main_env


class Anything:
    def __init__(self, *given: Any, **named: Any) -> None:
        self.made = given, named


@pytest.mark.parametrize("fairtest", [None, False])
def test_a_runner_with_other_arguments_is_made_as_the_fork_makes_it(fairtest: bool | None) -> None:
    args = arguments() if fairtest is None else arguments(fairtest=fairtest)
    host: Any = None
    assert attach._runner(Swapped, host, LOGGER, args, main_env=5).made == (LOGGER, args, 5)
    assert attach._runner(Anything, host, args, 1, more=2).made == ((args, 1), {"more": 2})
    assert attach._runner(Anything, host, 1).made == ((1,), {})


def test_a_runner_that_is_not_told_the_hosts_arguments_cannot_carry_fairtest() -> None:
    with pytest.raises(PluginError, match="FairTest does not know the runner 'Anything'"):
        fairtest_runner(Anything, None)(5)  # type: ignore[arg-type]
    with pytest.raises(PluginError, match="FairTest does not know the runner 'Anything'"):
        attach._runner(Anything, None, arguments(fairtest=True))


def test_a_host_without_an_episode_runner_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: dict[str, Any] = {"other": Anything}
    monkeypatch.setattr(attach, "loaded_hosts", lambda: [SimpleNamespace(runners=registry)])
    attach.register_runners()
    assert list(registry) == ["other"]
    assert registry["other"](7).made == ((7,), {})


@pytest.mark.parametrize("given", [{"hidden_dim": 64, "use_rnn": False}, {"rnn_hidden_dim": 64}])
def test_the_width_of_the_network_is_known_by_both_its_names(given: dict[str, Any]) -> None:
    network = network_of(SimpleNamespace(obs_last_action=True, obs_agent_id=True, **given))
    assert (network["hidden_dim"], network["use_rnn"]) == (64, "use_rnn" not in given)


def test_what_the_record_of_a_team_lacks_is_named() -> None:
    with pytest.raises(FairTestError, match=r"lacks hidden_dim \(or rnn_hidden_dim\), obs_agent_id"):
        network_of(SimpleNamespace(obs_last_action=True))


GOOD = {
    "src/main.py": "open('ran', 'w').close()\n",
    "src/run.py": "import sacred\n",
    "src/runners/__init__.py": "",
    "src/envs/__init__.py": "",
    "src/envs/gymma.py": "import gymnasium as gym\nclass GymmaWrapper: ...\n",
}
UNSUITED = {
    "no sacred": ({"src/run.py": ""}, "does not use sacred"),
    "no gymma": ({"src/envs/gymma.py": "import gymnasium\n"}, "has no environment gymma"),
    "old gym": ({"src/envs/gymma.py": "import gym\nclass GymmaWrapper: ...\n"}, "made with gym;"),
    "old gym, renamed": ({"src/envs/gymma.py": "from gym.spaces import Box\n# gymma\n"}, "made with gym;"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("EPYMARL_HOME", raising=False)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(attach, "_reached", [])
    monkeypatch.setattr(Experiment, "run_commandline", Experiment.run_commandline)
    return tmp_path


def checkout_with(place: Path, changes: dict[str, str]) -> None:
    for name, text in {**GOOD, **changes}.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


@pytest.mark.parametrize("kind", UNSUITED)
def test_a_checkout_that_cannot_be_tested_is_refused_before_training_by_all(
    kind: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, why = UNSUITED[kind]
    checkout_with(place, changes)
    before = sorted(place.rglob("*"))
    for command in (["launch", "--", "src/main.py", "with", "fairtest=True"], ["install", "."]):
        assert main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert why in line
    assert main(["doctor", "."]) == 1
    assert why in capsys.readouterr().out
    assert sorted(place.rglob("*")) == before


def test_a_script_that_never_comes_to_sacred_is_not_called_tested(place: Path) -> None:
    checkout_with(place, {})
    with pytest.raises(FairTestError, match="without handing its command line to sacred"):
        launch(["src/main.py", "with", "fairtest=True"])
    assert (place / "ran").exists()


# --- recording ----------------------------------------------------------------------------------------


class Source:
    recorded: list[Any] | None = None


class Controller:
    def forward(self, *given: Any) -> Any:
        return torch.zeros(1, 2, 3)


def played(recording: Recording, paid: list[Any], out: Any = None) -> None:
    """One training episode with these rewards; `out` is what the controller answers instead."""
    mac: Any = Controller()
    if out is not None:
        mac.forward = lambda: out
    runner = SimpleNamespace(batch_size=1, mac=mac)
    with recording.watching(runner):
        for reward in paid:
            runner.mac.forward()
            if recording.sources[0].recorded is not None:
                recording.sources[0].recorded.append(reward)


@pytest.mark.parametrize(
    ("paid", "out", "why"),
    [
        ([[1.0, 0.0], "ZeroDivisionError: division by zero"], None, "ZeroDivisionError: division by zero"),
        ([[1.0, 0.0], [np.nan, 0.0]], None, "training episode 2, step 1, agent 0"),
        ([[1.0, 0.0], [0.0, np.inf]], None, "training episode 2, step 1, agent 1"),
        ([[1.0, 0.0]], (1, 2), "AttributeError"),
    ],
)
def test_whatever_goes_wrong_while_recording_is_told_once_and_training_goes_on(
    paid: list[Any], out: Any, why: str
) -> None:
    said: list[str] = []
    recording = Recording(TrainingSample(10, 0), said.append)
    recording.sources = [Source()]
    played(recording, [[1.0, 0.0]] * 3)
    assert len(recording.sample.episodes()) == 1
    for _ in range(3):
        played(recording, paid, out)
    (line,) = said
    assert why in line
    assert "Training continues" in line
    assert recording.broken
    assert recording.sample.offered == 0, "what is left would be the early episodes alone"


def test_an_error_of_the_hosts_own_still_ends_training() -> None:
    recording = Recording(TrainingSample(10, 0), pytest.fail)
    recording.sources = [Source()]
    with pytest.raises(KeyError), recording.watching(SimpleNamespace(batch_size=1, mac=Controller())):
        raise KeyError("of the host")
