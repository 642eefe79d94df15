"""Actor-critic teams: the host's own probabilities, sampled alike everywhere, and named for what they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import (
    assert_identical,
    engine_of,
    few_and_many,
    hosts_answers,
    our_answers,
    policy_folder,
    random_weights,
    record_of,
    some_tests,
    training_of,
)

from epymarl_fairtest.commands import main
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.scores import EXECUTIONS, execution_of, recorded
from epymarl_fairtest.engine.action_rules import choose
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.selection import make_engine, real_engine
from epymarl_fairtest.host.controller import ControllerPolicy, try_controller
from epymarl_fairtest.host.hosts import Host, PymarlZoo
from epymarl_fairtest.store.finished import read_run
from epymarl_fairtest.strategies import configure
from epymarl_fairtest.team.checkpoint import load_policy, load_record, rebuild, record_of_training, save_policy
from epymarl_fairtest.team.saved import saved_team

ACTOR = {"algorithm": "mappo", "agent_output_type": "pi_logits"}
OTHERS = (
    "maddpg",
    "ippo",
    "ippo_ns",
    "mappo_ns",
    "maa2c",
    "maa2c_ns",
    "ia2c",
    "ia2c_ns",
    "coma",
    "coma_ns",
    "maddpg_ns",
    "pac_ns",
)
EPYMARL_ONLY = ("pac_ns", "pac_dcg_ns")
ROWS, STEPS = 7, 5


def actors(folder: Path, task: str, agent: str = "mlp") -> Path:
    """A saved team whose agents are not certain of anything."""
    record = record_of(task, agent, **ACTOR)
    save_policy(folder, record, {name: value * 0.4 for name, value in random_weights(record).items()})
    return folder


def no_warning(message: str) -> None:
    raise AssertionError(message)


# --- the same team as the host's ----------------------------------------------------------------------


ONE = {"runner": "episode", "batch_size_run": 1}


def probabilities(training: Any, answers: torch.Tensor) -> Any:
    """MADDPG's controller gives logits."""
    return (answers.softmax(-1) if training.args.mac == "maddpg_mac" else answers).numpy()


@pytest.mark.parametrize(
    "algorithm", ["mappo", *(pytest.param(name, marks=pytest.mark.slow) for name in (*OTHERS, "pac_dcg_ns"))]
)
@pytest.mark.parametrize("host", ["zoo", "epymarl"], indirect=True)
def test_the_saved_team_has_the_hosts_probabilities_and_samples_the_same_actions(
    host: Host, algorithm: str, tmp_path: Path
) -> None:
    if isinstance(host, PymarlZoo) and algorithm in EPYMARL_ONLY:
        pytest.skip("PyMARLzoo+ has no PAC")
    if algorithm in EPYMARL_ONLY:  # as its pac_requirements.txt says
        pytest.importorskip("einops")
        pytest.importorskip("torch_scatter")
    training = training_of(host, algorithm, 0.15, **ONE)
    obs_size = training.runner.env.get_obs_size()
    record = record_of_training(training.args, time_limit=25, n_agents=3, n_actions=5, obs_size=obs_size)
    save_policy(tmp_path / "team", record, training.mac.agent.state_dict())
    saved = load_policy(tmp_path / "team", load_record(tmp_path / "team"), obs_size=obs_size, n_agents=3, n_actions=5)
    live = ControllerPolicy(training.mac, training.runner.new_batch, training.args, obs_size)
    assert saved.reading == live.reading == "logits"

    generator, available = np.random.default_rng(3), np.ones((3, 5), bool)
    obs = generator.normal(size=(ROWS, STEPS, 3, obs_size)).astype(np.float32)
    actions = generator.integers(0, 5, (ROWS, STEPS, 3)).astype(np.int16)
    answers = [our_answers(policy, obs, actions)[0] for policy in (saved, live)]
    from_saved, from_live = (recorded(scores, available, "logits") for scores in answers)
    assert from_saved.tobytes() == from_live.tobytes()
    assert np.abs(from_saved - probabilities(training, hosts_answers(training, obs, actions))).max() < 1e-6
    assert training.mac.agent_output_type == "pi_logits", "the controller was left changed"
    stream, rule = generator.integers(0, 2**64, ROWS, dtype=np.uint64), ActionRule("policy", 0.0, 1.0, available)
    for t in range(STEPS):
        at = np.full(ROWS, t)
        assert np.array_equal(choose(from_saved[:, t], stream, at, rule), choose(from_live[:, t], stream, at, rule))
    training.runner.close_env()


@pytest.mark.parametrize("host", ["zoo"], indirect=True)
def test_a_controller_that_softmaxes_on_its_own_is_asked_for_its_probabilities(host: Host) -> None:
    training = training_of(host, "mappo", 0.15, **ONE)
    mac, forward, size = training.mac, training.mac.forward, training.runner.env.get_obs_size()
    usual = ControllerPolicy(mac, training.runner.new_batch, training.args, size)
    obs = np.random.default_rng(0).normal(size=(4, 3, size)).astype(np.float32)
    asked = obs, np.full((4, 3), -1, np.int16), np.zeros((4, 3, usual.hidden_size), np.float32)
    plain = recorded(usual.forward(*asked)[0], np.ones((3, 5), bool), "logits")
    mac.forward = lambda batch, t, test_mode=False: forward(batch, t, test_mode=test_mode).softmax(-1)
    stubborn = ControllerPolicy(mac, training.runner.new_batch, training.args, size)
    found = recorded(stubborn.forward(*asked)[0], np.ones((3, 5), bool), "logits")
    assert np.abs(found - plain).max() < 1e-6


@pytest.mark.parametrize("host", ["zoo"], indirect=True)
@pytest.mark.parametrize("fault", ["shape", "raises"])
def test_a_controller_that_cannot_be_asked_is_refused_by_name(host: Host, fault: str) -> None:
    training = training_of(host, "mappo", 0.15, **ONE)
    answers = {"shape": lambda batch, t: torch.zeros(256, 2, 5), "raises": lambda batch, t: batch.nothing}
    training.mac.forward = answers[fault]
    with pytest.raises(FairTestError, match=r"controller 'BasicMAC' of the algorithm 'mappo'.*basic_mac"):
        try_controller(training.mac, training.runner.new_batch, training.args, training.runner.env.get_obs_size())


# --- how it is executed -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
def test_rows_that_do_not_run_are_all_zero_and_no_reason_to_warn() -> None:
    values = np.array([[[0.0, 0.0]], [[0.0, 1.0]]], np.float32)
    rule = ActionRule("policy", 0.0, 1.0, np.ones((1, 2), bool))
    assert choose(values, np.arange(2, dtype=np.uint64), np.zeros(2, np.int64), rule)[1] == 1


def test_actions_are_drawn_as_often_as_the_policy_says() -> None:
    share = np.array([0.5, 0.3, 0.2, 0.0], np.float32)
    values = np.broadcast_to(share, (20_000, 2, 4))
    rule = ActionRule("policy", 0.9, 7.0, np.ones((2, 4), bool))
    drawn = choose(values, np.arange(20_000, dtype=np.uint64), np.zeros(20_000, np.int64), rule)
    for agent in range(2):
        assert np.bincount(drawn[:, agent], minlength=4) / 20_000 == pytest.approx(share, abs=0.015)
    assert (drawn[:, 0] != drawn[:, 1]).any(), "agents draw for themselves"


@pytest.mark.parametrize("task", ["spread", "tag", "foraging"])
@few_and_many("episodes", 4, 40)
@pytest.mark.parametrize("agent", ["mlp", pytest.param("gru", marks=pytest.mark.slow)])
def test_the_twin_plays_the_same_bits_as_the_environment(task: str, agent: str, episodes: int, tmp_path: Path) -> None:
    team = saved_team(actors(tmp_path, task, agent), "env")
    settings = configure({"engine": "twin", "workers": 1})
    tests = some_tests(task, episodes)
    played = make_engine(team, settings, no_warning).execute(tests)
    assert_identical(played, real_engine(team, settings).execute(tests))
    shares = played.q[played.running]
    assert shares.sum(axis=-1) == pytest.approx(np.ones(shares.shape[:-1]), abs=1e-5)
    assert (played.actions != played.q.argmax(-1))[played.running].any(), "it samples"


@pytest.mark.parametrize("kind", ["greedy", "epsilon_greedy"])
def test_it_may_be_greedy_as_well(kind: str) -> None:
    record = record_of("spread", "mlp", **ACTOR)
    logits, weights = rebuild(random_weights(record), record), random_weights(record)
    values = rebuild(weights, replace(record, agent_output_type="q"))
    tests = some_tests("spread", 4)
    by_logits, by_values = (engine_of("spread", kind=kind, policy=policy).execute(tests) for policy in (logits, values))
    assert np.array_equal(by_logits.actions, by_values.actions), "the highest logit is the highest probability"


def test_auto_is_what_suits_the_team_and_other_ways_are_refused() -> None:
    assert {reading: execution_of("auto", reading) for reading in EXECUTIONS} == {
        "q": "epsilon_greedy",
        "logits": "policy",
    }
    with pytest.raises(
        FairTestError, match=r"execution=softmax does not suit .* probabilities .*policy, epsilon_greedy"
    ):
        execution_of("softmax", "logits")
    with pytest.raises(FairTestError, match=r"execution=policy does not suit .* Q-values"):
        configure({"execution": "policy"}).played_by("q")


# --- whole runs ---------------------------------------------------------------------------------------

WORK = ["--set", "budget=200", "--set", "report=false", "--set", "progress=false"]


@pytest.mark.parametrize("method", ["fairtest", "starla"])
@pytest.mark.slow
def test_a_search_tests_such_a_team(method: str, tmp_path: Path) -> None:
    team, out = actors(tmp_path / "team", "foraging"), tmp_path / "run"
    assert main(["run", "--policy", str(team), "--out", str(out), *WORK, "--set", f"method={method}"]) == 0
    run = read_run(out)
    assert run.settings["execution"] == "policy"
    assert run.summary["engine"] == "twin"
    assert run.summary["unstable_failures"] == 0
    with np.load(out / "failures.npz") as file:
        assert file["q"].min() >= 0
        assert file["q"].max() <= 1


@pytest.mark.slow
def test_explaining_works_for_such_a_team(tmp_path: Path) -> None:
    team, out = actors(tmp_path / "team", "spread"), tmp_path / "run"
    more = ["--set", "method=random", "--set", "explain=3", "--set", "theta=0.99"]
    assert main(["run", "--policy", str(team), "--out", str(out), *WORK, *more]) == 0
    assert read_run(out).summary["explain"]["explained"] == 3


def test_a_team_is_called_what_policy_yaml_says(tmp_path: Path) -> None:
    said = {
        "logits": ({"algorithm": "ippo_ns"}, {"algorithm": "own", "agent_output_type": "pi_logits"}),
        "q": ({"algorithm": "vdn"}, {"algorithm": "mappo", "agent_output_type": "q"}),
    }
    for reading, descriptions in said.items():
        for number, described in enumerate(descriptions):
            folder = policy_folder(tmp_path / f"{reading}{number}", "spread", **described)
            assert saved_team(folder, "env").policy.reading == reading


@pytest.mark.parametrize("described", [{"algorithm": "own"}, {"agent_output_type": "gaussian"}])
def test_a_team_of_another_kind_is_refused_by_name(described: dict[str, Any], tmp_path: Path) -> None:
    folder = policy_folder(tmp_path, "spread", **described)
    with pytest.raises(FairTestError) as refused:
        load_record(folder)
    for part in (*map(repr, described.values()), "mappo", "qmix", "agent_output_type: q", "policy.yaml"):
        assert part in str(refused.value)
