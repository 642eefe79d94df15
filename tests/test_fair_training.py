"""`fairtest_args.welfare`: training is paid for fairness; `fairtest_args.repair`: repaired after its test."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from host_jobs import SHORT, host_arguments

from epymarl_fairtest.host import attach, repairing
from epymarl_fairtest.host.aside import PluginError
from epymarl_fairtest.host.build import Training, build_training
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.repair.welfare import Shaping

pytestmark = pytest.mark.host

hosts = pytest.mark.parametrize("host", ["zoo", "epymarl"], indirect=True)


def training_of(host: Host, given: str) -> Training:
    args = host_arguments(host, f"--config=iql --env-config=fairtest_mpe with {SHORT} fairtest=True {given}")
    return build_training(host, args, partial(attach._runner, host.runners["episode"], host))  # type: ignore[arg-type]


def played(training: Training) -> tuple[Any, np.ndarray]:
    """The rewards that the learner will see, and what each agent was paid by the environment."""
    batch = training.runner.run(test_mode=False)
    batch = batch[0] if isinstance(batch, tuple) else batch
    paid = np.array(training.runner._fairtest.recording.played[0])
    return batch["reward"][0, : len(paid)].numpy(), paid


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@hosts
@pytest.mark.usefixtures("_here")
def test_the_learner_is_paid_the_bonus_and_the_hosts_log_keeps_the_return(host: Host) -> None:
    training = training_of(host, "fairtest_args.welfare=gini fairtest_args.welfare_weight=1.0")
    rewards, paid = played(training)
    expected = Shaping("gini", 1.0)(paid[None])[0].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(rewards, expected, rtol=1e-5)
    assert not np.allclose(rewards[:, 0], paid.sum(axis=1))
    returns = training.runner.train_returns
    logged = returns[-1] if len(returns) else training.runner.logger.stats["return_mean"][-1][1]
    assert float(np.sum(logged)) == pytest.approx(paid.sum(), rel=1e-5)
    training.runner.env.close()


@hosts
@pytest.mark.usefixtures("_here")
def test_without_welfare_the_learner_is_paid_what_the_environment_pays(host: Host) -> None:
    training = training_of(host, "fairtest_args.welfare=None")
    training.runner._fairtest.recording.always = True
    rewards, paid = played(training)
    np.testing.assert_allclose(rewards[:, 0], paid.sum(axis=1), rtol=1e-5)
    training.runner.env.close()


@pytest.mark.parametrize("host", ["epymarl"], indirect=True)
@pytest.mark.usefixtures("_here")
def test_agents_that_are_paid_one_by_one_share_the_bonus_evenly(host: Host) -> None:
    training = training_of(host, "common_reward=False fairtest_args.welfare=jain")
    scale = 0.0
    for number in range(1, 3):
        rewards, paid = played(training)
        scale += (abs(paid.sum()) - scale) / number
        expected = Shaping("jain", 3.0, theta=0.8, scale=scale)(paid[None])[0]
        np.testing.assert_allclose(rewards, expected, rtol=1e-4)
    training.runner.env.close()


@pytest.mark.parametrize("host", ["zoo"], indirect=True)
@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("fairtest_args.welfare=kind", "gini, jain, min, or null"),
        ("fairtest_args.welfare=gini fairtest_args.welfare_weight=3.0", "at most 1"),
        ("fairtest_args.repair=quick", "options of `fairtest repair`"),
        ("fairtest_args.repair=--out=there", "besides --policy and --out"),
        ("fairtest_args.welfare=gini fairtest_args.allocation=nearest_landmark", "an environment that pays"),
    ],
)
def test_what_cannot_be_paid_for_is_refused_before_training(host: Host, given: str, told: str) -> None:
    with pytest.raises(PluginError, match=told):
        training_of(host, given)


@hosts
@pytest.mark.parametrize(
    ("asked", "words"), [(True, []), ("--steps 100 --seeds 1", ["--steps", "100", "--seeds", "1"])]
)
def test_the_team_is_repaired_by_the_command_in_a_process_of_its_own(
    host: Host, asked: Any, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []

    def run(command: list[str], env: dict[str, str]) -> Any:
        ran.append((command, env))
        return CompletedProcess(command, 3 if asked is True else 2)

    monkeypatch.setattr(repairing.subprocess, "run", run)
    said: list[str] = []
    repairing.repair_run(host, tmp_path / "run", asked, said.append)
    ((command, env),) = ran
    assert command[1:4] == ["-m", "epymarl_fairtest", "repair"]
    assert command[4:] == [str(tmp_path / "run"), "--out", str(tmp_path / "run-repaired"), *words]
    if host.name == "EPyMARL":
        assert (Path(env["EPYMARL_HOME"]) / "src" / "main.py").is_file()
    assert any("could not repair" in message for message in said) == (asked is not True)
