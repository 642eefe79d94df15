"""`runner=fairtest_twin`: a host's training whose episodes the environment's twin plays, a batch at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from host_jobs import FORAGING, SHORT, host_arguments

from epymarl_fairtest.host import attach
from epymarl_fairtest.host.aside import PluginError
from epymarl_fairtest.host.build import Training, build_training
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.host.random_states import seed_everything
from epymarl_fairtest.team.sample import FILE, load_sample

pytestmark = pytest.mark.host

hosts = pytest.mark.parametrize("host", ["zoo", "epymarl"], indirect=True)
tasks = pytest.mark.parametrize("task", ["fairtest_mpe", "fairtest_pp", "fairtest_lbf"])
TWIN = "runner=fairtest_twin batch_size_run=4 log_interval=50 runner_log_interval=50"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def training_of(host: Host, given: str, algorithm: str = "qmix", env: str = "fairtest_lbf") -> Training:
    args = host_arguments(host, f"--config={algorithm} --env-config={env} with {SHORT} {TWIN} {given}")
    seed_everything(1)
    parallel = host.runners["parallel"]

    def runner(**named: Any) -> Any:
        return attach._twin_runner(parallel, host, **named)

    return build_training(host, args, runner)  # type: ignore[arg-type]


def played(training: Training, test: bool = False) -> Any:
    batch = training.runner.run(test_mode=test)
    return batch[0] if isinstance(batch, tuple) else batch


@hosts
@tasks
def test_a_batch_holds_what_the_environment_itself_would_have_shown_and_paid(host: Host, task: str) -> None:
    training = training_of(host, "fairtest=False", env=task)
    runner = training.runner
    batch = played(training)
    episodes, env = runner.episodes, runner._environment._env
    assert batch.batch_size == 4
    assert runner.t_env == episodes.length.sum() == int(batch["filled"].sum()) - 4
    seed, steps = int(episodes.root_seed[0]), int(episodes.length[0])
    seen, _ = env.reset(seed=seed)
    for step in range(steps):
        np.testing.assert_allclose(batch["obs"][0, step].numpy(), np.array(seen, np.float32), rtol=1e-6)
        np.testing.assert_allclose(batch["state"][0, step].numpy(), np.concatenate(seen), rtol=1e-6)
        seen, rewards, *_ = env.step(batch["actions"][0, step, :, 0].tolist())
        assert float(batch["reward"][0, step, 0]) == pytest.approx(float(np.sum(rewards)), rel=1e-5, abs=1e-6)
    assert batch["terminated"][0, :, 0].nonzero().flatten().tolist() == [steps - 1]


@hosts
def test_the_controllers_exploration_is_used_and_logged(host: Host) -> None:
    training = training_of(host, "fairtest=False")
    runner = training.runner
    played(training)
    greedy = training.mac.action_selector
    assert greedy.epsilon == pytest.approx(1.0)
    runner.t_env = 10**6
    played(training)
    assert greedy.epsilon == pytest.approx(training.args.epsilon_finish)
    at = runner.t_env
    played(training, test=True)
    assert greedy.epsilon == training.args.evaluation_epsilon
    assert runner.t_env == at, "a test is no training"
    logged = runner.logger.stats
    assert {"return_mean", "epsilon", "ep_length_mean"} <= logged.keys()
    assert 0.0 <= logged["return_mean"][-1][1] <= 1.0


@hosts
def test_two_trainings_with_one_seed_are_equal_and_learn(host: Host) -> None:
    learned = []
    for seed in (1, 1, 2):
        training = training_of(host, f"fairtest=False seed={seed}", env="fairtest_mpe")
        before = {name: value.clone() for name, value in training.mac.agent.state_dict().items()}
        for number in range(5):
            training.episode(number)
        learned.append(training.mac.agent.state_dict())
        assert any(not torch.equal(before[name], value) for name, value in learned[-1].items())
    assert all(torch.equal(learned[0][name], learned[1][name]) for name in learned[0])
    assert any(not torch.equal(learned[0][name], learned[2][name]) for name in learned[0])


@pytest.mark.parametrize("host", ["epymarl"], indirect=True)
@pytest.mark.parametrize("given", ["--config=ippo", "--config=iql common_reward=False"])
def test_actor_critics_and_individual_rewards_train_too(host: Host, given: str) -> None:
    algorithm, *changes = given.removeprefix("--config=").split()
    short = SHORT.replace(" epsilon_anneal_time=1000", "") if algorithm == "ippo" else SHORT
    text = f"--config={algorithm} --env-config=fairtest_pp with {short} {TWIN} {' '.join(changes)} fairtest=False"
    args = host_arguments(host, text)
    args.batch_size = args.buffer_size = 4
    training = build_training(host, args, lambda **named: attach._twin_runner(host.runners["parallel"], host, **named))  # type: ignore[arg-type]
    for number in range(3):
        training.episode(number)
    agents = training.runner.batch["reward"].shape[-1]
    assert agents == (1 if not changes else args.n_agents)
    assert training.runner.t_env == 3 * 4 * training.runner.episode_limit


@hosts
def test_with_fairtest_on_board_the_episodes_are_sampled_paid_and_the_team_tested(host: Host, tmp_path: Path) -> None:
    out = tmp_path / "run"
    training = training_of(
        host,
        f"fairtest=True fairtest_args.out={out} fairtest_args.welfare=gini fairtest_args.welfare_weight=1.0"
        " fairtest_args.training_pool=6",
        env="fairtest_mpe",
    )
    runner = training.runner
    batch = played(training)
    rewards = runner.episodes.rewards
    assert not np.allclose(batch["reward"][:, :-1, 0].numpy(), rewards.sum(axis=-1)), "no bonus was paid"
    played(training)
    runner.close_env()
    kept = load_sample(out / "policy" / FILE)
    assert len(kept) == 6
    assert kept.rewards.shape[-1] == training.args.n_agents
    assert (out / "summary.json").is_file()


@hosts
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("fairtest=False env_args.key=lbforaging:Foraging-2s-8x8-3p-3f-v3", "there is no twin of"),
        ("fairtest=False action_selector=multinomial", "action_selector=multinomial"),
        ("fairtest=True fairtest_args.allocation=level_share", "judges others|allocation"),
    ],
)
def test_what_a_twin_cannot_play_is_refused(host: Host, given: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        training_of(host, given)


def test_foraging_of_the_stock_package_has_a_twin_too(zoo_host: Host) -> None:
    training = training_of(zoo_host, f"fairtest=False env_args.key={FORAGING} env_args.time_limit=50", env="gymma")
    assert played(training).batch_size == 4


@pytest.fixture
def zoo_host() -> Host:
    from epymarl_fairtest.host.hosts import PymarlZoo

    return PymarlZoo()
