"""Training on: a host's own learner on episodes that our engines play, from a policy folder to a policy folder."""

from __future__ import annotations

import pickle
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from support import policy_folder, random_weights, record_of

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.host import trainer as module
from epymarl_fairtest.host.at_once import forward_at_once
from epymarl_fairtest.host.build import build_training, configuration
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.host.learner_state import remembered_learner, restore, settings_of_learner, state_of
from epymarl_fairtest.host.trainer import HostTrainer
from epymarl_fairtest.repair.collector import some_tests
from epymarl_fairtest.repair.contract import Diverged, Lesson, Starts
from epymarl_fairtest.repair.welfare import Shaping
from epymarl_fairtest.team.checkpoint import LEARNER, digest, load_learner, load_record, load_weights, save_policy
from epymarl_fairtest.team.saved import saved_team

pytestmark = pytest.mark.host

ZOO = HostTrainer("pymarlzoo")
QUICK = {"batch_size": 4, "buffer_size": 64, "epsilon_finish": 0.1, "common_reward": True}
hosts = pytest.mark.parametrize("host", ["zoo", "epymarl"], indirect=True)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BATCH": 8, "UPDATES": 2, "RELEARNED": 2}.items():
        monkeypatch.setattr(module, name, value)


def team_of(folder: Path, algorithm: str = "qmix", task: str = "spread", **learner: Any) -> Path:
    return policy_folder(folder, task, "mlp", algorithm=algorithm, learner={**QUICK, **learner})


def held(folder: Path) -> tuple[str, str]:
    return digest(load_weights(folder / "agent.th")), digest(load_learner(folder))


def test_the_same_lesson_gives_the_same_bits_and_another_seed_others(tmp_path: Path) -> None:
    team = team_of(tmp_path / "team")
    shaping = Shaping("jain", 2.0, scale=20.0)
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
        ZOO.train(Lesson(team, 400, seed, shaping), tmp_path / name)
        after = torch.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
        assert torch.equal(before[0], after[0])
        assert before[1] == after[1], "the caller's random state was changed"
    assert held(tmp_path / "a") == held(tmp_path / "b") != held(tmp_path / "c")
    assert held(tmp_path / "a")[0] != held(team)[0], "nothing was learned"


def test_a_trained_team_is_an_ordinary_policy_folder_that_can_be_trained_on(tmp_path: Path) -> None:
    team = team_of(tmp_path / "team")
    first = ZOO.train(Lesson(team, 200, 0), tmp_path / "first")
    assert any("mixer and optimiser and rew_ms were learned again" in note for note in first.notes)
    record = load_record(tmp_path / "first")
    assert record.training_steps == first.steps >= 200
    assert record.learner["batch_size"] == 4
    saved_team(tmp_path / "first", "env")
    second = ZOO.train(Lesson(tmp_path / "first", 200, 0), tmp_path / "second")
    assert not second.notes
    names = load_learner(tmp_path / "second").keys()
    assert {name.split(".")[0] for name in names} == {"mixer", "target_mixer", "target_mac", "optimiser", "rew_ms"}


def test_a_lost_mixer_is_learned_again_while_the_agents_do_not_change(tmp_path: Path) -> None:
    team = team_of(tmp_path / "team")
    ZOO.train(Lesson(team, 0, 0), tmp_path / "out")
    assert held(tmp_path / "out")[0] == held(team)[0]
    mixer = {name: value for name, value in load_learner(tmp_path / "out").items() if name.startswith("mixer.")}
    targets = load_learner(tmp_path / "out")
    assert any(not torch.equal(value, targets[f"target_{name}"]) for name, value in mixer.items()), "it learned nothing"


def test_shaping_and_starts_change_what_is_learned(tmp_path: Path) -> None:
    team = team_of(tmp_path / "team", "iql")
    states = saved_team(team, "env").make_world()
    states.reset(7)
    starts = Starts(states.state()[None], np.array([7]))
    lessons = [
        Lesson(team, 300, 0),
        Lesson(team, 300, 0, Shaping("gini", 1.0)),
        Lesson(team, 300, 0, None, starts, 0.5),
    ]
    for number, lesson in enumerate(lessons):
        ZOO.train(lesson, tmp_path / str(number))
    assert len({held(tmp_path / str(number)) for number in range(3)}) == 3


def test_a_share_of_the_episodes_begins_at_the_given_starts(tmp_path: Path) -> None:
    team = saved_team(team_of(tmp_path / "team"), "env")
    size = team.task.state_size
    starts = Starts(np.arange(2 * size, dtype=float).reshape(2, size), np.array([5, 6]))
    tests = some_tests(10, team, starts, 0.3, np.random.default_rng(0))
    assert (~tests.from_seed).sum() == 3
    assert set(tests.root_seed[:3].tolist()) <= {5, 6}
    seeds_alone = some_tests(10, team, Starts(np.empty((2, 0)), np.array([5, 6])), 0.3, np.random.default_rng(0))
    assert seeds_alone.from_seed.all()
    assert set(seeds_alone.root_seed[:3].tolist()) <= {5, 6}


def test_a_lost_learner_is_learned_again_from_the_rewards_that_the_arm_will_see(tmp_path: Path) -> None:
    """Otherwise a quarter of a shaped training's buffer holds ordinary rewards, and its statistics are theirs."""
    team = team_of(tmp_path / "team")
    for name, shaping in (("plain", None), ("shaped", Shaping("jain", 2.0, scale=20.0))):
        ZOO.train(Lesson(team, 0, 0, shaping), tmp_path / name)
    plain, shaped = (load_learner(tmp_path / name) for name in ("plain", "shaped"))
    assert held(tmp_path / "shaped")[0] == held(team)[0]
    assert not torch.equal(plain["rew_ms.mean"], shaped["rew_ms.mean"])


def test_the_learning_rate_falls_to_nothing_in_the_last_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []

    class Watched(module.Pace):
        def set(self, share: float) -> None:
            shares.append(share)
            super().set(share)

    monkeypatch.setattr(module, "Pace", Watched)
    ZOO.train(Lesson(team_of(tmp_path / "team", "iql"), 1600, 0), tmp_path / "out")
    steps = [min(1.0, 2 * (1 - turn * 8 * 25 / 1600)) for turn in range(len(shares))]
    assert shares == pytest.approx(steps)
    assert shares[0] == 1.0
    assert 0 < shares[-1] < 0.5


def test_a_pace_is_a_share_of_the_learning_rates_as_they_were() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    learner = SimpleNamespace(optimiser=torch.optim.Adam([weight], lr=0.01), mac=None)
    pace = module.Pace(learner)
    for share in (0.5, 0.1):
        pace.set(share)
        assert learner.optimiser.param_groups[0]["lr"] == pytest.approx(0.01 * share)


def test_weights_that_diverge_end_the_training_with_a_word_of_advice(tmp_path: Path) -> None:
    team = team_of(tmp_path / "team", "iql", lr=1e30)
    with pytest.raises(FairTestError, match=r"diverged|not finite") as told:
        ZOO.train(Lesson(team, 2000, 0), tmp_path / "out")
    assert isinstance(told.value, Diverged)
    assert not (tmp_path / "out").exists()


# --- what a learner holds -----------------------------------------------------------------------------


@hosts
def test_a_learner_that_is_given_back_what_it_held_goes_on_as_if_nothing_had_happened(host: Host) -> None:
    def training(seed: int) -> Any:
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        return build_training(host, configuration(host, "qmix", "fairtest_lbf", {**QUICK, "seed": 1}))

    one = training(1)
    for number in range(6):
        one.episode(number)
    other = training(2)
    other.mac.agent.load_state_dict(one.mac.agent.state_dict())
    restore(other.learner, state_of(one.learner), "here")
    assert digest(state_of(other.learner)) == digest(state_of(one.learner))
    sample = one.buffer.sample(4)
    for each in (one, other):
        each.learner.train(sample[:, : sample.max_t_filled()], 1000, 10)
    assert digest(one.mac.agent.state_dict()) == digest(other.mac.agent.state_dict())
    one.runner.close_env()
    other.runner.close_env()


@hosts
@pytest.mark.parametrize("algorithm", ["iql", "mappo"])
@pytest.mark.parametrize("memory", [False, True])
def test_answers_for_all_steps_at_once_are_the_hosts_answers(host: Host, memory: bool, algorithm: str) -> None:
    changes = {**QUICK, "use_rnn": memory, "obs_last_action": memory, "hidden_dim": 32}
    changes |= {"runner": "episode", "batch_size_run": 1, "buffer_size": 4}
    training = build_training(host, configuration(host, algorithm, "fairtest_lbf", changes))
    for number in range(4):
        training.episode(number)
    batch = training.buffer.sample(4)
    training.mac.init_hidden(4)
    with torch.no_grad():
        theirs = torch.stack([training.mac.forward(batch, t) for t in range(batch.max_seq_length)], 1)
        forward_at_once(training.mac)
        ours = torch.stack([training.mac.forward(batch, t) for t in range(batch.max_seq_length)], 1)
    there = slice(None) if memory else batch["filled"][:, :, 0] > 0  # the learner masks the other steps
    assert torch.allclose(theirs[there], ours[there], atol=1e-5)
    training.runner.close_env()


@hosts
def test_the_settings_of_a_learner_hold_neither_machine_nor_files(host: Host) -> None:
    args = configuration(host, "qmix", "fairtest_lbf", {"checkpoint_path": "/somewhere", "unique_token": "x"})
    kept = settings_of_learner(args)
    assert {"lr", "gamma", "batch_size", "mixer", "target_update_interval_or_tau", "epsilon_finish"} <= kept.keys()
    assert not {name for name in kept if "path" in name or "token" in name or name in ("seed", "env_args", "use_cuda")}


@hosts
def test_the_learner_that_a_host_makes_is_remembered_and_its_registry_left_as_it_was(host: Host) -> None:
    args = configuration(host, "iql", "fairtest_mpe", QUICK)
    from importlib import import_module

    registry = import_module(f"{host.prefix}learners").REGISTRY
    before = dict(registry)
    learner = remembered_learner(host, args)
    assert learner() is None
    training = build_training(host, args)
    assert learner() is training.learner
    assert registry == before
    training.runner.close_env()


# --- policy folders -----------------------------------------------------------------------------------


def test_a_folder_of_format_1_is_read_and_trained_with_the_hosts_settings(tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team", "spread", "mlp", algorithm="iql")
    values = asdict(load_record(folder))
    del values["learner"]
    (folder / "policy.yaml").write_text(yaml.safe_dump({**values, "format": 1}))
    assert load_record(folder).format == 1
    trained = ZOO.train(Lesson(folder, 100, 0), tmp_path / "out")
    assert any("the host's own settings" in note for note in trained.notes)
    assert load_record(tmp_path / "out").format == 2


def test_settings_of_a_learner_must_be_plain_values(tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team")
    text = (folder / "policy.yaml").read_text().replace("learner: {}", "learner: {lr: .inf}")
    (folder / "policy.yaml").write_text(text)
    with pytest.raises(FairTestError, match=r"learner=.*plain values"):
        load_record(folder)


def test_a_learner_file_that_would_run_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "ran",))

    team = team_of(tmp_path / "team")
    (team / LEARNER).write_bytes(pickle.dumps({"mixer.x": Evil()}))
    with pytest.raises(FairTestError, match=r"learner\.th"):
        ZOO.train(Lesson(team, 100, 0), tmp_path / "out")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("change", ["lacks", "shape", "nan"])
def test_a_learner_file_that_does_not_fit_is_refused_with_the_remedy(change: str, tmp_path: Path) -> None:
    team = team_of(tmp_path / "team")
    ZOO.train(Lesson(team, 100, 0), tmp_path / "first")
    state = load_learner(tmp_path / "first")
    if change == "lacks":
        state = {name: value for name, value in state.items() if not name.startswith("rew_ms")}
    elif change == "shape":
        state["mixer.V.0.bias"] = torch.zeros(3)
    else:
        state["mixer.V.0.bias"] = torch.full_like(state["mixer.V.0.bias"], float("nan"))
    torch.save(state, tmp_path / "first" / LEARNER)
    with pytest.raises(FairTestError, match="delete it"):
        ZOO.train(Lesson(tmp_path / "first", 100, 0), tmp_path / "second")


# --- another setting of the learner ---------------------------------------------------------------------


def test_a_given_setting_of_the_learner_counts_and_is_told_and_kept(tmp_path: Path) -> None:
    team = team_of(tmp_path / "team")
    trained = HostTrainer("pymarlzoo", {"lr": 0.01}).train(Lesson(team, 100, 0), tmp_path / "quick")
    ZOO.train(Lesson(team, 100, 0), tmp_path / "usual")
    assert "Every arm learned with lr=0.01, which was given." in trained.notes
    assert load_record(tmp_path / "quick").learner["lr"] == 0.01
    assert held(tmp_path / "quick") != held(tmp_path / "usual")


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        ({"rate": 0.1}, r"--learner rate: no setting of how this team learns\. There are: .*\blr\b"),
        ({"use_rnn": True}, "--learner use_rnn: no setting"),
        ({"hidden_dim": 24}, "--learner hidden_dim=24 is not allowed; .* have 16 hidden units .* a multiple .* 4096"),
        ({"hidden_dim": 8}, "--learner hidden_dim=8 is not allowed"),
        ({"hidden_dim": 32.0}, "--learner hidden_dim=32.0 is not allowed"),
        ({"hidden_dim": 10**6}, "--learner hidden_dim=1000000 is not allowed"),
        ({"lr": "fast"}, r"--learner lr=fast is not allowed; it is [\d.]+ now"),
        ({"double_q": 2}, "--learner double_q=2 is not allowed; it is True now"),
        ({"lr": True}, "--learner lr=True is not allowed"),
        ({"lr": -1}, r"cannot train this team with the settings in policy.yaml \(learner\) and --learner: .*-1"),
    ],
)
def test_a_setting_that_the_learner_does_not_have_is_refused(learner: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(FairTestError, match=words):
        HostTrainer("pymarlzoo", learner).check(team_of(tmp_path / "team"))


@pytest.mark.parametrize("agent", ["mlp", "gru"])
@pytest.mark.parametrize("separate", [False, True])
def test_a_wider_network_answers_nearly_as_before_until_it_has_learned(
    agent: str, separate: bool, tmp_path: Path
) -> None:
    record = record_of("spread", agent, algorithm="iql_ns" if separate else "iql", learner=QUICK)
    save_policy(tmp_path / "team", record, random_weights(record, separate=separate))
    wide = HostTrainer("pymarlzoo", {"hidden_dim": 48})
    for name, steps in (("begun", 0), ("again", 0), ("trained", 200)):
        notes = wide.train(Lesson(tmp_path / "team", steps, 0), tmp_path / name).notes
        assert any("The networks are wider: optimiser" in note for note in notes)
    assert held(tmp_path / "begun") == held(tmp_path / "again")
    assert load_record(tmp_path / "begun").hidden_dim == 48
    before, begun, trained = (answers(tmp_path / name) for name in ("team", "begun", "trained"))
    assert 0 < np.abs(begun - before).max() < 0.05 * before.std()
    assert np.abs(trained - begun).max() > 0
    assert not HostTrainer("pymarlzoo").train(Lesson(tmp_path / "begun", 100, 0), tmp_path / "on").notes


def answers(folder: Path) -> Any:
    """Of a saved team, after it has looked around three times."""
    policy = saved_team(folder, "env").policy
    seen = np.random.default_rng(0).normal(size=(9, policy.n_agents, policy.obs_size)).astype(np.float32)
    hidden = np.zeros((9, policy.n_agents, policy.hidden_size), np.float32)
    for action in (-1, 2, 3):
        scores, hidden = policy.forward(seen, np.full((9, policy.n_agents), action, np.int16), hidden)
    return scores


# --- what cannot be trained ---------------------------------------------------------------------------


def test_a_team_that_needs_single_rewards_is_refused_where_the_host_has_none(tmp_path: Path) -> None:
    team = team_of(tmp_path / "team", "iql", common_reward=False)
    with pytest.raises(FairTestError, match=r"rewards of the single agents.*fairtest install"):
        ZOO.check(team)


def test_without_a_host_the_message_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    team = team_of(tmp_path / "team")
    monkeypatch.setattr(module, "known_checkout", lambda: None)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FairTestError, match=r"fairtest install CHECKOUT.*pip install .*pymarlzooplus"):
        HostTrainer().check(team)


def test_an_algorithm_that_the_host_does_not_know_is_refused(tmp_path: Path) -> None:
    record = replace(record_of("spread", "mlp"), algorithm="mystery", agent_output_type="q")
    save_policy(tmp_path / "team", record, random_weights(record))
    with pytest.raises(FairTestError, match="mystery"):
        ZOO.check(tmp_path / "team")
