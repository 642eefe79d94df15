"""The fairness curve during training: logged at the right steps, kept whole, and training is not touched."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import warnings
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from host_jobs import SHORT, host_arguments

from epymarl_fairtest.curve.series import FILE, read_curve
from epymarl_fairtest.host import attach
from epymarl_fairtest.host import curve as host_curve
from epymarl_fairtest.host.build import Training, build_training
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.team.saved import saved_team

pytestmark = pytest.mark.host

both_hosts = pytest.mark.parametrize("host", ["zoo", "epymarl"], indirect=True)
CURVE = "fairtest=True fairtest_args.curve_episodes=20 fairtest_args.out=run"
MPE = "--env-config=fairtest_mpe"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a host is started."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def training_of(host: Host, command: str) -> Training:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002  (what the hosts draw from)
    torch.manual_seed(1)
    args = host_arguments(host, command)
    made = partial(attach._runner, host.runners[args.runner], host)
    return build_training(host, args, made)  # type: ignore[arg-type]


def go_on(training: Training, episodes: int, *, tests: int = 2) -> None:
    """As the hosts' loops do: train, and a test of several episodes after every third."""
    for number in range(episodes):
        training.episode(number)
        if number % 3 == 0:
            for _ in range(tests):
                training.runner.run(test_mode=True)


def trained(host: Host, command: str, episodes: int = 7) -> dict[str, Any]:
    """The weights, what was logged apart from FairTest's, and the random numbers that come next."""
    training = training_of(host, command)
    before = deepcopy(training.mac.agent.state_dict())
    go_on(training, episodes)
    weights = training.mac.agent.state_dict()
    changed = any(not torch.equal(before[name], weights[name]) for name in weights)
    assert changed or not episodes, "the learner never learnt"
    logged = {k: v for k, v in training.runner.logger.stats.items() if not k.startswith("fairtest_")}
    training.runner.env.close()
    drawn = {"random": random.random(), "numpy": np.random.rand(), "torch": torch.rand(1).item()}  # noqa: NPY002
    return {"weights": weights, "logged": logged, **drawn}


@both_hosts
@pytest.mark.parametrize("command", [pytest.param("--config=qmix", marks=pytest.mark.slow), "--config=iql"])
def test_training_gives_the_same_bits_with_a_curve_and_without_fairtest(host: Host, command: str, place: Path) -> None:
    """Parallel runners train in processes of their own: the pairs of test_plugin.py have a curve, too."""
    command = f"{command} {MPE} with {SHORT} use_rnn=True"
    trained(host, f"{command} fairtest=False", episodes=0)  # importing a host draws random numbers
    on, off = (trained(host, f"{command} {switched}") for switched in (CURVE, "fairtest=False"))
    for name, value in off.pop("weights").items():
        assert torch.equal(on["weights"][name], value), name
    del on["weights"]
    assert json.dumps(on, default=float) == json.dumps(off, default=float)
    curve = read_curve(place / "run-curve" / FILE)
    assert len(curve.points) == 3, "the curve was not drawn at all"


@both_hosts
def test_a_point_is_logged_at_every_test_of_the_host_and_is_on_disk_at_once(host: Host, place: Path) -> None:
    training = training_of(host, f"--config=qmix {MPE} with {SHORT} {CURVE} fairtest_args.curve_keep=all")
    go_on(training, 4, tests=3)
    training.runner.env.close()
    stats = training.runner.logger.stats
    points = read_curve(place / "run-curve" / FILE).points  # as a kill at this moment would leave it
    assert [step for step, _ in stats["fairtest_curve_return"]] == [point.step for point in points] == [25, 100]
    for name in (
        "natural_rate",
        "natural_rate_low",
        "natural_rate_high",
        "index",
        "worst_off",
        "best_off",
        "undefined",
    ):
        assert len(stats[f"fairtest_curve_{name}"]) == 2
    assert [value for _, value in stats["fairtest_curve_natural_rate"]] == [p.unfair / p.executions for p in points]
    kept = saved_team(place / "run-curve" / "100", "env")
    live = training.mac.agent.state_dict()
    assert torch.equal(
        live["fc1.weight"], torch.load(place / "run-curve/100/agent.th", weights_only=True)["fc1.weight"]
    )
    assert kept.limit == 25


# --- what goes wrong ----------------------------------------------------------------------------------


class Listening(list[str]):
    """A console that keeps what is said."""

    def info(self, message: str) -> None:
        self.append(message)

    warning = info


def listening(training: Training) -> Listening:
    said = Listening()
    training.runner._fairtest.curve._console = said
    return said


@pytest.mark.parametrize("host", ["zoo"], indirect=True)
@pytest.mark.parametrize("broken", ["curve", "disk", "team"])
def test_an_error_in_the_curve_is_told_once_and_training_goes_on(
    broken: str, host: Host, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = training_of(host, f"--config=iql {MPE} with {SHORT} {CURVE}")
    said = listening(training)

    def fails(*given: Any, **named: Any) -> Any:
        raise {"curve": ZeroDivisionError("one"), "disk": OSError(28, "No space left"), "team": None}[broken]

    if broken == "team":
        with torch.no_grad():
            training.mac.agent.fc1.weight.fill_(float("nan"))
    else:
        monkeypatch.setattr(host_curve, "point_of" if broken == "curve" else "append", fails)
    go_on(training, 4)
    training.runner.env.close()
    assert len([message for message in said if "no further points" in message]) == 1
    why = {"curve": "ZeroDivisionError: one", "disk": "No space left", "team": "not finite"}[broken]
    assert why in " ".join(said)
    assert training.runner.t_env == 100


@pytest.mark.parametrize("host", ["zoo"], indirect=True)
def test_a_point_shows_no_warnings_and_makes_none_of_the_hosts_come_again(
    host: Host, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = training_of(host, f"--config=iql {MPE} with {SHORT} {CURVE}")
    shown: list[str] = []
    point_of = host_curve.point_of

    def warned(text: str) -> None:
        warnings.warn(text, RuntimeWarning, stacklevel=1)

    def warning_point(*given: Any) -> Any:
        warned("ours")
        return point_of(*given)

    monkeypatch.setattr(host_curve, "point_of", warning_point)
    with warnings.catch_warnings():
        warnings.simplefilter("default", RuntimeWarning)
        monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: shown.append(str(message)))
        for number in range(3):
            training.episode(number)
            training.runner.run(test_mode=True)
            warned("the host's own")
    training.runner.env.close()
    assert len(training.runner._fairtest.curve.points) == 3
    assert shown.count("the host's own") == 1
    assert "ours" not in shown


@pytest.mark.parametrize("host", ["zoo"], indirect=True)
@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ("fairtest_args.engine=lockstep", ["draws no fairness curve", "fairtest_args.curve_episodes=100", "in all"]),
        (
            "fairtest_args.engine=lockstep fairtest_args.curve_episodes=9",
            ["plays 9 random executions", "itself: about"],
        ),
        ("fairtest_args.curve_episodes=9 test_interval=500", ["test_interval=500 is larger than t_max=200"]),
        (
            "fairtest_args.index=gini fairtest_args.theta=auto fairtest_args.curve_episodes=9",
            ["no further points", "give theta a number"],
        ),
        ("fairtest_args.curve_episodes=0", []),
    ],
)
def test_what_a_curve_costs_or_lacks_is_told_before_training(
    changes: str, parts: list[str], host: Host, place: Path
) -> None:
    short = SHORT.replace("fairtest_args.curve_episodes=0", "")
    training = training_of(host, f"--config=iql {MPE} with {short} fairtest=True test_interval=100 {changes}")
    said = listening(training)
    training.runner._fairtest.curve.announce()
    training.runner.env.close()
    text = " ".join(said)
    assert all(part in text for part in parts), text
    assert bool(parts) == bool(said)


@pytest.mark.parametrize("host", ["zoo"], indirect=True)
def test_the_cost_of_a_point_is_measured_once_and_the_curve_of_an_unknown_network_is_drawn(
    host: Host, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that cannot be rebuilt is asked through its live controller, whose memory is put back."""
    training = training_of(host, f"--config=iql {MPE} with {SHORT} {CURVE} use_rnn=True")
    said = listening(training)
    training.episode(0)
    monkeypatch.setattr(host_curve, "mismatches", lambda *given: ["a layer that nobody knows"])
    before = training.mac.hidden_states
    training.runner._fairtest.curve.take(training.runner)
    assert training.mac.hidden_states is before
    known = read_curve(place / "run-curve" / FILE).points
    monkeypatch.undo()
    curve = training.runner._fairtest.curve
    point = host_curve.point_of(25, curve._player.play(policy_of(training), curve._tests))
    training.runner.env.close()
    assert known == [point]
    assert len([message for message in said if "took" in message]) == 1


def policy_of(training: Training) -> Any:
    curve = training.runner._fairtest.curve
    weights = dict(training.mac.agent.state_dict())
    return curve._policy(training.runner, weights, curve._course.record(25))


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{tests!r}]
import epymarl_fairtest.host.curve as host_curve
from test_curve_training import go_on, training_of
from epymarl_fairtest.host.build import load_host

logged, count = host_curve.logged, 0

def dying(point):
    global count
    count += 1
    if count == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return logged(point)

host_curve.logged = dying
go_on(training_of(load_host("pymarlzoo"), {command!r}), 10)
"""


@pytest.mark.fresh
def test_a_training_that_is_killed_leaves_what_was_measured(place: Path) -> None:
    command = f"--config=iql {MPE} with {SHORT} {CURVE} fairtest_args.curve_keep=all"
    program = KILLED.format(tests=str(Path(__file__).parent), command=command)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=place, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert [point.step for point in read_curve(place / "run-curve" / FILE).points] == [25, 100, 175]
    assert sorted(path.name for path in (place / "run-curve").iterdir()) == ["100", "25", FILE]
    assert not (place / "run").exists()
