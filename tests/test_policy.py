"""The team from its weights alone equals the host's live controller; checkpoints that do not fit are refused."""

from __future__ import annotations

import os
import pickle
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from support import (
    hosts_answers,
    our_answers,
    policy_folder,
    random_policy,
    random_weights,
    record_of,
    training_of,
)

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.host.controller import ControllerPolicy
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.team.checkpoint import (
    PolicyRecord,
    digest,
    load_policy,
    load_record,
    load_weights,
    save_policy,
)
from epymarl_fairtest.team.contract import CHUNK
from epymarl_fairtest.team.policy import NetworkPolicy
from epymarl_fairtest.team.saved import saved_team

# --- the same team as the host's ----------------------------------------------------------------------


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "qmix": ("qmix", {}),
    "iql": ("iql", {}),
    "iql_ns": ("iql_ns", {}),
    "iql_ns with memory": ("iql_ns", {"use_rnn": True, "obs_last_action": True}),
    "last action, no memory": ("vdn", {"use_rnn": False, "obs_last_action": True}),
    "memory, no id": ("qmix", {"use_rnn": True, "obs_last_action": False, "obs_agent_id": False}),
}
STEPS, ROWS = 6, 9


def recorded(training: Any, obs_size: int) -> PolicyRecord:
    args = training.args
    return PolicyRecord(
        algorithm=args.name,
        key=args.env_args["key"],
        time_limit=args.env_args["time_limit"],
        n_agents=args.n_agents,
        n_actions=args.n_actions,
        obs_size=obs_size,
        hidden_dim=args.hidden_dim,
        use_rnn=args.use_rnn,
        obs_last_action=args.obs_last_action,
        obs_agent_id=args.obs_agent_id,
    )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("host", ["zoo", "epymarl"], indirect=True)
def test_the_team_from_its_weights_equals_the_hosts_controller(host: Host, variant: str, tmp_path: Path) -> None:
    algorithm, changes = VARIANTS[variant]
    training = training_of(host, algorithm, 0.3, **changes)
    obs_size = training.runner.env.get_obs_size()
    record = recorded(training, obs_size)
    save_policy(tmp_path / "team", record, training.mac.agent.state_dict())
    saved = load_policy(tmp_path / "team", load_record(tmp_path / "team"), obs_size=obs_size, n_agents=3, n_actions=5)
    live = ControllerPolicy(training.mac, training.runner.new_batch, training.args, obs_size)
    assert saved.hidden_size == live.hidden_size == (record.hidden_dim if record.use_rnn else 0)

    rng = np.random.default_rng(3)
    obs = rng.normal(size=(ROWS, STEPS, 3, obs_size)).astype(np.float32)
    actions = rng.integers(0, 5, (ROWS, STEPS, 3)).astype(np.int16)
    from_saved, memory = our_answers(saved, obs, actions)
    from_live, live_memory = our_answers(live, obs, actions)
    assert from_saved.tobytes() == from_live.tobytes()
    assert memory.tobytes() == live_memory.tobytes()
    theirs = hosts_answers(training, obs, actions).numpy()
    assert np.abs(from_saved - theirs).max() < 1e-6 * max(1.0, np.abs(theirs).max())
    assert (from_saved.argmax(-1) == theirs.argmax(-1)).all()
    assert len(np.unique(theirs.argmax(-1))) > 1
    if record.obs_last_action:
        assert our_answers(saved, obs, np.roll(actions, 1, axis=2))[0].tobytes() != from_saved.tobytes()
    training.runner.close_env()


@pytest.mark.parametrize(("agent", "size"), [("mlp", 64), ("mlp", 10), ("gru", 128), ("gru", 64), ("gru", 16)])
def test_a_row_does_not_depend_on_its_batch(agent: str, size: int) -> None:
    record = record_of("spread", agent, hidden_dim=size, obs_last_action=True)
    policy = random_policy(record)
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(CHUNK + 40, 3, record.obs_size)).astype(np.float32)
    last = rng.integers(-1, 5, (CHUNK + 40, 3)).astype(np.int16)
    hidden = rng.normal(size=(CHUNK + 40, 3, policy.hidden_size)).astype(np.float32)
    q, after = policy.forward(obs, last, hidden)
    for rows in (slice(0, 1), slice(5, 12), slice(CHUNK - 3, CHUNK + 20)):
        part, memory = policy.forward(obs[rows], last[rows], hidden[rows])
        assert part.tobytes() == q[rows].tobytes()
        assert memory.tobytes() == after[rows].tobytes()


@pytest.mark.parametrize("last_action", [False, True])
@pytest.mark.parametrize(("agent", "size"), [("mlp", 64), ("mlp", 10), ("gru", 128), ("gru", 44)])
def test_a_policy_that_is_asked_again_and_again_says_what_it_says_once(
    agent: str, size: int, last_action: bool
) -> None:
    record = record_of("spread", agent, hidden_dim=size, obs_last_action=last_action)
    policy = random_policy(record)
    rng, count = np.random.default_rng(0), CHUNK + 40
    hidden = rng.normal(size=(count, 3, policy.hidden_size)).astype(np.float32)
    seats = policy.seats(hidden)
    assert seats is not None
    for _ in range(3):
        obs = rng.normal(size=(count, 3, record.obs_size)).astype(np.float32)
        last = rng.integers(-1, 5, (count, 3)).astype(np.int16)
        seats.inputs[:, :, : record.obs_size] = obs
        q, hidden = policy.forward(obs, last, hidden)
        assert seats.ask(last).tobytes() == q.tobytes()
        assert seats.hidden.tobytes() == hidden.tobytes()


def test_agents_of_their_own_differ_and_keep_their_order() -> None:
    record = record_of("spread", "mlp", obs_agent_id=False)
    weights = random_weights(record, separate=True)
    policy = NetworkPolicy(
        weights,
        n_agents=3,
        n_actions=5,
        obs_size=record.obs_size,
        recurrent=False,
        obs_last_action=False,
        obs_agent_id=False,
    )
    obs = np.ones((1, 3, record.obs_size), np.float32)
    q, _ = policy.forward(obs, np.zeros((1, 3), np.int16), np.zeros((1, 3, 0), np.float32))
    second = torch.nn.functional.linear(
        torch.ones(record.obs_size), weights["agents.1.fc1.weight"], weights["agents.1.fc1.bias"]
    )
    second = torch.nn.functional.linear(
        second.relu(), weights["agents.1.rnn.weight"], weights["agents.1.rnn.bias"]
    ).relu()
    expected = torch.nn.functional.linear(second, weights["agents.1.fc2.weight"], weights["agents.1.fc2.bias"])
    assert q[0, 1] == pytest.approx(expected.numpy(), rel=1e-5)
    assert not np.allclose(q[0, 0], q[0, 1])


# --- checkpoints --------------------------------------------------------------------------------------


def refused(folder: Path) -> str:
    with pytest.raises(FairTestError) as caught:
        saved_team(folder, "env")
    return str(caught.value)


def test_a_saved_team_comes_back_as_it_was(tmp_path: Path) -> None:
    record = record_of("tag", "gru", env_args={"allocation": "prey_distance"}, test_return=-3.5, training_steps=10)
    weights = random_weights(record)
    save_policy(tmp_path / "team", record, weights)
    assert load_record(tmp_path / "team") == record
    again = load_weights(tmp_path / "team" / "agent.th")
    assert digest(again) == digest(weights)
    assert saved_team(tmp_path / "team", "env").policy.hidden_size == 16


def test_the_digest_names_exactly_these_weights() -> None:
    weights = random_weights(record_of("spread", "mlp"))
    assert digest(dict(reversed(weights.items()))) == digest(weights)
    changed = {**weights, "fc2.bias": weights["fc2.bias"] + 1e-6}
    assert digest(changed) != digest(weights)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert f"There is no policy folder '{tmp_path / 'nowhere'}'" in refused(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["agent.th", "policy.yaml"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team")
    (folder / name).unlink()
    assert name in refused(folder)


def test_an_empty_folder_is_refused_with_both_ways_to_go_on(tmp_path: Path) -> None:
    message = refused(tmp_path)
    assert "holds no policy.yaml" in message
    assert "write policy.yaml beside it" in message
    assert "evaluate=True checkpoint_path=" in message


def test_a_checkpoint_instead_of_its_folder_is_told_apart_from_nothing(tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team")
    assert f"is a file; give the folder that it is in, '{folder}'" in refused(folder / "agent.th")


@pytest.mark.parametrize("keep", [0, 1, 10, 200, 1000, -1, -200])
def test_a_truncated_checkpoint_is_refused(keep: int, tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team")
    content = (folder / "agent.th").read_bytes()
    (folder / "agent.th").write_bytes(content[:keep])
    message = refused(folder)
    assert "agent.th' is not a readable checkpoint" in message
    assert "Copy the file again" in message


@pytest.mark.slow
def test_random_damage_is_refused_or_gives_a_team_but_nothing_else(tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team")
    content = (folder / "agent.th").read_bytes()
    rng = np.random.default_rng(0)
    refusals = 0
    for _ in range(300):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), 6):
            damaged[place] = int(rng.integers(256))
        (folder / "agent.th").write_bytes(bytes(damaged))
        try:
            saved_team(folder, "env")
        except FairTestError:
            refusals += 1
    assert refusals > 30


@pytest.mark.parametrize("content", [b"not a checkpoint", b"PK\x03\x04", b"\x80\x04.", pickle.dumps({"a": 1})])
def test_other_files_are_no_checkpoints(content: bytes, tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team")
    (folder / "agent.th").write_bytes(content)
    assert "agent.th'" in refused(folder)


@pytest.mark.parametrize("saved", [[1, 2], {"fc1.weight": [1.0]}, torch.zeros(3)])
def test_a_file_without_named_tensors_is_refused(saved: Any, tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team")
    torch.save(saved, folder / "agent.th")
    assert "holds no named tensors" in refused(folder)


class Hostile:
    """Unpickling it makes a folder."""

    def __init__(self, target: Path) -> None:
        self.target = str(target)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.target,)


@pytest.mark.parametrize("save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
def test_a_hostile_checkpoint_does_not_run(save: Any, tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team")
    target = tmp_path / "broken in"
    save({"fc1.weight": Hostile(target)}, folder / "agent.th")
    assert "nothing in it was executed" in refused(folder)
    assert not target.exists()
    torch.load(folder / "agent.th", weights_only=False) if save is torch.save else pickle.loads(
        (folder / "agent.th").read_bytes()
    )
    assert target.exists(), "the file would have done nothing anyway"


def test_all_mismatches_are_told_in_one_message(tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team")
    record = record_of("spread", "mlp", hidden_dim=32, n_actions=4)
    weights = random_weights(record)
    del weights["fc2.bias"]
    weights["more"] = torch.zeros(2)
    torch.save(weights, folder / "agent.th")
    message = refused(folder)
    for part in (
        "hidden_dim is 16 in policy.yaml and 32 in agent.th",
        "n_actions is 5 in policy.yaml and 4 in agent.th",
        "fc2.bias has shape None in agent.th, expected (4,)",
        "more has shape (2,) in agent.th, expected None",
    ):
        assert part in message
    assert message.count(";") == 3, "what these explain is not said again"


@pytest.mark.parametrize("separate", [False, True])
def test_the_lines_of_policy_yaml_that_the_weights_contradict_are_named(separate: bool, tmp_path: Path) -> None:
    record = record_of("spread", "gru", hidden_dim=32, obs_agent_id=False, obs_last_action=True)
    wrong = {"hidden_dim": 16, "use_rnn": False, "obs_agent_id": True, "obs_last_action": False}
    save_policy(tmp_path / "team", replace(record, **wrong), random_weights(record, separate=separate))
    assert refused(tmp_path / "team") == (
        f"The checkpoint in '{tmp_path / 'team'}' does not fit: hidden_dim is 16 in policy.yaml and 32 in agent.th;"
        " use_rnn is false in policy.yaml and true in agent.th; obs_last_action is false in policy.yaml and true in"
        " agent.th; obs_agent_id is true in policy.yaml and false in agent.th."
    )


def test_a_wrong_obs_size_is_named_and_nothing_else(tmp_path: Path) -> None:
    record = record_of("spread", "mlp")
    save_policy(tmp_path / "team", replace(record, obs_size=1), random_weights(record))
    assert refused(tmp_path / "team").endswith(
        f"does not fit: obs_size is {record.obs_size} in the environment '{record.key}' and 1 in policy.yaml."
    )


def test_a_team_of_another_environment_is_refused(tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team", "spread", key="epymarl_fairtest:lbforaging-v0")
    message = refused(folder)
    assert "n_actions is 6 in the environment" in message
    assert "and 5 in policy.yaml" in message


def test_separate_agents_are_checked_one_by_one(tmp_path: Path) -> None:
    record = record_of("spread", "mlp", obs_agent_id=False)
    weights = random_weights(record, separate=True)
    save_policy(tmp_path / "team", record, weights)
    assert saved_team(tmp_path / "team", "env")
    weights["agents.2.fc1.weight"] = torch.zeros(16, 9)
    save_policy(tmp_path / "team", record, weights)
    assert "agents.2.fc1.weight has shape (16, 9)" in refused(tmp_path / "team")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value: float, tmp_path: Path) -> None:
    record = record_of("spread", "mlp")
    weights = random_weights(record)
    weights["rnn.bias"][3] = value
    save_policy(tmp_path / "team", record, weights)
    assert "rnn.bias holds NaN or infinite numbers" in refused(tmp_path / "team")


# --- policy.yaml --------------------------------------------------------------------------------------


def written(folder: Path, **changes: Any) -> Path:
    values = yaml.safe_load((folder / "policy.yaml").read_text())
    for name, value in changes.items():
        if value is ...:
            del values[name]
        else:
            values[name] = value
    (folder / "policy.yaml").write_text(yaml.safe_dump(values))
    return folder


def test_every_wrong_line_of_policy_yaml_is_told_at_once(tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team")
    message = refused(
        written(folder, n_agents="three", use_rnn=1, hidden_dim=..., time_limit=0, colour="red", format=3)
    )
    for part in (
        "n_agents='three' must be int",
        "use_rnn=1 must be bool",
        "missing hidden_dim",
        "time_limit=0 must be at least 1",
        "unknown 'colour'",
        "format=3 is none of 1, 2",
    ):
        assert part in message


@pytest.mark.parametrize("name", [f.name for f in fields(PolicyRecord)])
def test_every_line_of_policy_yaml_has_a_type(name: str, tmp_path: Path) -> None:
    folder = written(policy_folder(tmp_path / "team"), **{name: [1]})
    assert f"{name}=[1] must be" in refused(folder)


@pytest.mark.parametrize("name", list(asdict(record_of("spread", "mlp")))[:10])
def test_what_the_network_needs_must_be_in_policy_yaml(name: str, tmp_path: Path) -> None:
    assert f"missing {name}" in refused(written(policy_folder(tmp_path / "team"), **{name: ...}))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[1, 2]", "must hold NAME: VALUE lines, not list"),
        ("", "must hold NAME: VALUE lines, not NoneType"),
        ("a: [", "is not readable YAML"),
        ("a: !!python/object/apply:os.mkdir [evil]", "is not readable YAML"),
        ("\x00", "is not readable YAML"),
        ("1: 2", "unknown 1"),
    ],
)
def test_a_policy_yaml_of_another_kind_is_refused(text: str, part: str, tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team")
    (folder / "policy.yaml").write_text(text)
    assert part in refused(folder)
    assert not Path("evil").exists()


def test_an_environment_that_is_not_here_is_told_with_the_way_out(tmp_path: Path) -> None:
    message = refused(policy_folder(tmp_path / "team", key="pz-mpe-simple-nothing-v9"))
    assert "'pz-mpe-simple-nothing-v9'" in message
    assert "evaluate=True checkpoint_path" in message


def test_an_environment_with_a_single_agent_is_refused(tmp_path: Path) -> None:
    assert "at least two agents" in refused(policy_folder(tmp_path / "team", key="CartPole-v1"))
