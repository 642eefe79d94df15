"""`fairtest=True` inside the real hosts: complete results, untouched training, and clear refusals."""

from __future__ import annotations

import csv
import json
import logging
import random
import re
import shutil
import signal
import sys
import zlib
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import warm
import yaml
from host_jobs import ACTOR_CRITIC, CURVE, JOBS, ODD_ENVIRONMENTS, ON, PAGE, SHORT, Finished, host_arguments
from support import child_environment, random_weights, record_of

from epymarl_fairtest.commands import main
from epymarl_fairtest.host import attach
from epymarl_fairtest.host.aside import PluginError
from epymarl_fairtest.host.build import QuietLogger, Training, build_training
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.team.checkpoint import load_record, load_weights
from epymarl_fairtest.team.sample import load_sample

Results = Callable[[str], Finished]

SUMMARY_KEYS = {
    "task", "method", "preset", "seed", "theta", "executed_episodes", "executed_steps", "charged_strict",
    "charged_paper", "evaluated", "failures", "unique_failures", "distinct_failures", "roots", "undefined", "coverage",
    "jfi_quantiles", "wall_seconds", "cpu_seconds", "engine", "predictor", "ledger",
}  # fmt: skip
FURTHER_KEYS = {
    "index", "index_quantiles", "suffix_failures", "confirmed_failures", "unstable_failures", "phases", "notes",
    "natural_rate", "distinct_failures_wide", "distinct_starts", "coverage_of", "agents", "competence", "worst_off",
    "unfair_by_chance", "sides", "curve", "explain", "growth", "distinct_area", "tenth_distinct_failure",
}  # fmt: skip
PREDICTOR_KEYS = {"auc_abstract", "auc_full", "d", "joint_states"}
AFTERWARDS = {"natural.npz", "explain.json", "explain.npz"}  # of steps that may have nothing to say
FILES = {
    "manifest.json", "summary.json", "failures.npz", "failures.csv", "journal.jsonl", "policy/agent.th",
    "policy/learner.th",
    "policy/policy.yaml", "policy/training_pool.npz", "executions.npz", "evidence.npz", "checksums.json",
}  # fmt: skip
FALLBACK = "FairTest found no training sample beside the checkpoint"
ALIKE = "all receive the same"

TRAINED = {
    "zoo/qmix-foraging": "foraging",
    "zoo/qmix-tag-parallel": "tag",
    "zoo/iql-spread": "spread",
    "zoo/iql_ns-foraging": "foraging",
    "zoo/stock-foraging": "foraging",
    "epymarl/qmix-spread": "spread",
    "epymarl/qmix-tag": "tag",
    "epymarl/qmix-foraging-parallel": "foraging",
    "epymarl/iql-spread": "spread",
    "epymarl/iql-tag": "tag",
    "epymarl/iql-foraging": "foraging",
    "epymarl/vdn-tag": "tag",
    "epymarl/qmix_ns-foraging": "foraging",
    "epymarl/iql_ns-spread": "spread",
    "epymarl/installed": "foraging",
    "epymarl/stock-spread-allocated": "spread",
    "epymarl/mappo-foraging-parallel": "foraging",
    "epymarl/ippo-spread": "spread",
    "epymarl/ippo-foraging-parallel": "foraging",
    "zoo/mappo-foraging": "foraging",
    **{f"{host}/{name}-spread": "spread" for host, names in ACTOR_CRITIC.items() for name in names},
}
EVALUATED = {
    "zoo/evaluate": True,
    "zoo/evaluate-no-pool": False,
    "epymarl/evaluate": True,
    "epymarl/evaluate-no-pool": False,
    "epymarl/mappo-evaluate": True,
}
PAIRS = ("epymarl/qmix-spread", "epymarl/qmix-foraging-parallel", "epymarl/iql-spread-parallel", "zoo/qmix-foraging")
ACTORS = (  # pairs as well
    "epymarl/mappo-foraging-parallel", "epymarl/ippo-spread", "epymarl/ippo-foraging-parallel", "zoo/mappo-foraging",
)  # fmt: skip


both_hosts = pytest.mark.parametrize("host", ["zoo", "epymarl"], indirect=True)


def each(names: Any) -> Any:
    """Parametrise over jobs, each with its mark."""
    return pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.jobs(name)) for name in names])


# --- what a run leaves behind -------------------------------------------------------------------------


def check_run_folder(run: Path, files: set[str]) -> dict[str, Any]:
    found = {path.relative_to(run) for path in run.rglob("*") if path.is_file()}
    assert {str(path) for path in found if path.parts[0] != "curve"} - AFTERWARDS == files
    summary = json.loads((run / "summary.json").read_text())
    assert set(summary) == SUMMARY_KEYS | FURTHER_KEYS
    assert set(summary["predictor"]) >= PREDICTOR_KEYS
    assert summary["executed_episodes"] == summary["charged_strict"] == summary["evaluated"]
    with np.load(run / "failures.npz", allow_pickle=False) as file:
        failures = {name: file[name] for name in file.files}
    with open(run / "failures.csv", newline="") as file:
        assert len(list(csv.reader(file))) - 1 == summary["failures"]
    assert all(len(column) == summary["failures"] for column in failures.values())
    assert (summary["confirmed_failures"], summary["unstable_failures"]) == (summary["failures"], 0)
    if failures:
        assert (failures["jfi"] <= summary["theta"]).all()
    lines = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
    for line in lines:
        crc = line.pop("crc")
        assert crc == zlib.crc32(json.dumps(line, sort_keys=True).encode())
    if summary["method"] == "random":
        assert [line["episodes"] for line in lines] == [40, 20]
    assert sum(line["episodes"] for line in lines) == summary["executed_episodes"]
    assert sum(line["steps"] for line in lines) == summary["executed_steps"]
    manifest = json.loads((run / "manifest.json").read_text())
    assert {"fairtest", "versions", "task", "settings", "seed", "command", "host", "policy_digest"} <= set(manifest)
    return summary


def check_sacred(done: Finished, files: set[str], summary: dict[str, Any]) -> None:
    for name in files:
        artifact = done.sacred / ("fairtest_" + name.replace("/", "_"))
        content = (done.run / name).read_bytes()
        if name == "report/index.html":  # its links lead to the other artifacts
            content = content.replace(b'href="../', b'href="fairtest_')
        assert artifact.read_bytes() == content, name
    listed = json.loads((done.sacred / "run.json").read_text())["artifacts"]
    assert {"fairtest_" + name.replace("/", "_") for name in files} <= set(map(str, listed))
    info, metrics = done.info(), done.metrics()
    for name in ("failures", "distinct_failures", "undefined", "coverage", "charged_strict", "executed_steps"):
        assert info[f"fairtest_{name}"] == [summary[name]]
        assert metrics[f"fairtest_{name}"]["values"] == [summary[name]]
    assert metrics["fairtest_search_share"]["values"] == [summary["failures"] / summary["evaluated"]]
    assert metrics["fairtest_natural_rate"]["values"] == [summary["natural_rate"]["rate"]]
    assert info.get("fairtest") == (summary if done.job.host == "epymarl" else None)  # PyMARLzoo+ plots what is there


@each(TRAINED)
def test_training_with_fairtest_leaves_a_complete_run_folder_and_sacred_artifacts(name: str, finished: Results) -> None:
    done = finished(name)
    assert done.code == 0, done.output
    assert "Traceback" not in done.output
    files = FILES | {"report/index.html"} if PAGE in JOBS[name].arguments else FILES
    files = files | {"policy/curve.jsonl"} if CURVE in JOBS[name].arguments else files
    summary = check_run_folder(done.run, files)
    assert summary["task"] == TRAINED[name]
    check_sacred(done, files, summary)
    assert ("index.html" in done.said) == ("report/index.html" in files)
    assert "unfair episodes" in done.said
    assert 'Added new config entry: "fairtest' not in done.said
    assert done.run.name in done.said


@each(TRAINED)
def test_the_saved_team_and_pool_describe_the_training(name: str, finished: Results) -> None:
    done = finished(name)
    record = load_record(done.run / "policy")
    algorithm = "qmix" if name == "epymarl/installed" else JOBS[name].arguments.split()[0].removeprefix("--config=")
    assert record.algorithm == algorithm.replace("pac_", "pac_sarsa_")  # as EPyMARL calls them
    assert record.training_steps >= 200
    assert record.test_return == pytest.approx(done.statistics()["test_return_mean"][-1][1])
    weights = load_weights(done.run / "policy" / "agent.th")
    assert any(key.startswith("agents.") for key in weights) == ("_ns" in algorithm)
    pool = load_sample(done.run / "policy" / "training_pool.npz")
    assert len(pool) > 0
    assert ((pool.length > 0) & (pool.length <= record.time_limit)).all()
    assert pool.q.shape == (pool.length.sum(), record.n_agents, record.n_actions)
    assert pool.rewards.shape == (pool.length.sum(), record.n_agents)
    assert np.isfinite(pool.q).all()
    with np.load(done.run / "policy" / "training_pool.npz") as file:
        assert set(file.files) == {"position", "length", "offered", "q", "rewards"}


@each(["epymarl/qmix-foraging-parallel"])
def test_the_pool_keeps_no_more_than_its_size(name: str, finished: Results) -> None:
    pool = load_sample(finished(name).run / "policy" / "training_pool.npz")
    positions = pool.position.tolist()
    assert len(positions) == len(set(positions)) == 5
    assert max(positions) > 10


@each(PAIRS)
def test_the_pool_lies_beside_the_models_too(name: str, finished: Results) -> None:
    done = finished(name)
    beside = (done.models / "training_pool.npz").read_bytes()
    assert beside == (done.run / "policy" / "training_pool.npz").read_bytes()


@each([name for name in PAIRS if "parallel" not in name])
def test_the_recorded_rewards_are_those_that_training_added_up(name: str, finished: Results) -> None:
    """The first training episode is logged alone: its return is the sum of what the agents were paid."""
    done = finished(name)
    pool = load_sample(done.run / "policy" / "training_pool.npz")
    assert pool.position[0] == 1
    assert pool.rewards[: pool.length[0]].sum() == pytest.approx(done.statistics()["return_mean"][0][1], abs=1e-9)


@each(EVALUATED)
def test_a_saved_team_is_tested_without_training(name: str, finished: Results) -> None:
    done = finished(name)
    assert done.code == 0, done.output
    assert "Beginning training" not in done.said
    files = FILES if EVALUATED[name] else FILES - {"policy/training_pool.npz"}
    check_sacred(done, files, check_run_folder(done.run, files))
    assert (FALLBACK in done.said) != EVALUATED[name]
    assert ("FairTest uses the training sample in" in done.said) == EVALUATED[name]


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        pytest.param(a, b, marks=pytest.mark.jobs(a, b))
        for a, b in [("zoo/evaluate", "zoo/qmix-foraging"), ("epymarl/evaluate", "epymarl/qmix-spread")]
    ],
)
def test_the_tested_team_is_the_one_of_the_last_checkpoint(name: str, trained: str, finished: Results) -> None:
    models = finished(trained).models
    last = max((path for path in models.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    saved, tested = load_weights(last / "agent.th"), load_weights(finished(name).run / "policy" / "agent.th")
    assert flat(saved).keys() == flat(tested).keys()
    assert all(torch.equal(saved[key], tested[key]) for key in saved)
    manifest = json.loads((finished(name).run / "manifest.json").read_text())
    assert manifest["training_pool"] == len(load_sample(models / "training_pool.npz"))


@pytest.mark.jobs("zoo/iql_ns-foraging")
def test_runner_fairtest_needs_no_further_switch(finished: Results) -> None:
    config = json.loads((finished("zoo/iql_ns-foraging").sacred / "config.json").read_text())
    assert config["fairtest"] is False
    assert config["runner"] == "fairtest"


# --- training is not disturbed ------------------------------------------------------------------------


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested dicts and lists of a checkpoint as one dict of leaves."""
    if isinstance(value, dict):
        return {k: v for key, inner in value.items() for k, v in flat(inner, f"{prefix}/{key}").items()}
    if isinstance(value, list | tuple):
        return {k: v for i, inner in enumerate(value) for k, v in flat(inner, f"{prefix}/{i}").items()}
    return {prefix: value}


def checkpoints(done: Finished) -> dict[str, Any]:
    return {
        str(path.relative_to(done.models)): flat(torch.load(path, weights_only=True))
        for path in sorted(done.models.rglob("*.th"))
    }


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.jobs(n, f"{n}-off")) for n in PAIRS + ACTORS])
def test_training_is_bit_identical_with_and_without_fairtest(name: str, finished: Results) -> None:
    on, off = finished(name), finished(f"{name}-off")
    assert off.code == 0, off.output
    with_it, without = checkpoints(on), checkpoints(off)
    steps = sorted({int(file.split("/")[0]) for file in without})
    assert steps[-1] >= 600  # the last that the host's interval met
    assert with_it.keys() == without.keys()
    for file, expected in without.items():
        assert with_it[file].keys() == expected.keys()
        for leaf, value in expected.items():
            same = torch.equal(with_it[file][leaf], value) if torch.is_tensor(value) else with_it[file][leaf] == value
            assert same, f"{file}: {leaf}"
    first, last = (without[f"{step}/agent.th"] for step in (steps[0], steps[-1]))
    assert any(not torch.equal(first[leaf], last[leaf]) for leaf in last), "the learner never learnt"


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.jobs(n, f"{n}-off")) for n in PAIRS])
def test_logged_statistics_are_the_same_with_and_without_fairtest(name: str, finished: Results) -> None:
    on, off = finished(name).statistics(), finished(f"{name}-off").statistics()
    assert len(off["loss"]) >= 3
    assert off["loss"][-1][0] >= 500
    assert {"return_mean", "test_return_mean", "grad_norm", "q_taken_mean", "epsilon"} <= set(off)
    assert {key: value for key, value in on.items() if not key.startswith("fairtest_")} == off


@each(PAIRS)
def test_the_curve_is_logged_at_every_test_and_ends_with_the_team_that_is_tested(name: str, finished: Results) -> None:
    done = finished(name)
    curve, logged = done.summary()["curve"], done.statistics()
    steps = [point["step"] for point in curve["points"]]
    assert len(steps) >= 3
    assert steps[-1] == load_record(done.run / "policy").training_steps
    for key in ("return", "worst_off", "best_off", "undefined"):
        assert logged[f"fairtest_curve_{key}"] == [(point["step"], point[key]) for point in curve["points"]]
    rates = [(point["step"], point["rate"]) for point in curve["points"] if point["rate"] is not None]
    assert logged.get("fairtest_curve_natural_rate", []) == rates
    tested = [step for step, _ in logged["test_return_mean"]]
    assert set(tested) <= set(steps)
    kept = sorted(int(path.name) for path in (done.run / "curve").iterdir() if path.is_dir())
    assert set(kept) <= set(steps)
    assert not [path for path in done.run.parent.iterdir() if path.name.endswith("-curve")]


@each([f"{name}-off" for name in PAIRS])
def test_without_fairtest_nothing_of_it_is_in_the_results(name: str, finished: Results) -> None:
    done = finished(name)
    assert not done.run_folders()
    ours = [p for p in done.folder.glob("results/**/*") if p.name.startswith(("fairtest", "training_pool"))]
    assert ours == []
    assert not [key for key in {**done.info(), **done.metrics()} if "fairtest" in key]
    assert done.said.count("FairTest") == 1, "SHORT has settings of its own"
    assert "fairtest_args are given without fairtest=True: FairTest does not test the team." in done.said


@both_hosts
@pytest.mark.parametrize(
    "algorithm", ["qmix", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mappo", "ippo"))]
)
def test_a_few_episodes_of_training_are_the_same_with_and_without_fairtest(
    algorithm: str, host: Host, place: Path
) -> None:
    """The pairs above train longer, in processes of their own; this is quick enough for every day."""
    trained(f"{algorithm} fairtest=False", host, episodes=0)  # importing a host draws random numbers
    on, off = (trained(f"{algorithm} fairtest={on}", host, episodes=5) for on in (True, False))
    first, last = off
    assert any(not torch.equal(first[leaf], last[leaf]) for leaf in first), "the learner never learnt"
    for with_it, without in zip(on, off, strict=True):
        assert with_it.keys() == without.keys()
        assert all(torch.equal(with_it[leaf], without[leaf]) for leaf in without)


def trained(switched: str, host: Host, episodes: int) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The weights before and after, and with the latter the random numbers that come next."""
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002  (what the hosts draw from)
    torch.manual_seed(1)
    algorithm, switch = switched.split()
    short = f"{SHORT} runner=episode batch_size_run=1 buffer_size=4 {switch} use_rnn=True"
    args = host_arguments(host, f"--config={algorithm} --env-config=fairtest_mpe with {short}")
    made = partial(attach._runner, host.runners["episode"], host)
    training = build_training(host, args, made)  # type: ignore[arg-type]
    before = flat(deepcopy(training.mac.agent.state_dict()))
    for number in range(episodes):
        training.episode(number)
    training.runner.env.close()
    drawn = {"random": random.random(), "numpy": np.random.rand(), "torch": torch.rand(1)}  # noqa: NPY002
    return before, flat(training.mac.agent.state_dict()) | {name: torch.as_tensor(x) for name, x in drawn.items()}


# --- agents that all receive the same -----------------------------------------------------------------


class Listening(QuietLogger):
    """Keeps what is written to the console."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.console_logger = self

    def warning(self, message: str) -> None:
        self.said.append(message)

    info = warning


@pytest.mark.parametrize("host", ["epymarl"], indirect=True)
@pytest.mark.parametrize(
    ("changes", "allocation"),
    [
        ("env_args.key=pz-mpe-simple-spread-v3", "nearest_landmark"),
        ("env_args.key=pz-mpe-simple-tag-v3 env_args.pretrained_wrapper=PretrainedTag", "prey_distance"),
        ("env_args.key=pz-mpe-simple-spread-v3 fairtest_args.allocation=nearest_landmark", None),
    ],
)
def test_a_reward_that_is_the_same_for_all_is_told_by_the_runner_that_is_made_before_training(
    changes: str, allocation: str | None, host: Host, place: Path
) -> None:
    logger = Listening()
    command = f"--config=iql --env-config=gymma with {ON} {SHORT} env_args.time_limit=25 {changes}"
    runner_of(host, command, logger).env.close()
    warned = [message for message in logger.said if ALIKE in message]
    assert len(warned) == (allocation is not None)
    assert all(f"fairtest_args.allocation={allocation}" in message for message in warned)


@pytest.mark.parametrize(
    ("name", "allocation"),
    [
        pytest.param("epymarl/stock-spread", "nearest_landmark", marks=pytest.mark.jobs("epymarl/stock-spread")),
        pytest.param("epymarl/stock-tag", "prey_distance", marks=pytest.mark.jobs("epymarl/stock-tag")),
    ],
)
def test_a_reward_that_is_the_same_for_all_is_told_before_training(
    name: str, allocation: str, finished: Results
) -> None:
    done = finished(name)
    assert done.code == 0, done.output
    assert ALIKE in done.said
    assert done.said.index(ALIKE) < done.said.index("Beginning training")
    assert f"fairtest_args.allocation={allocation}" in done.said


@each(
    [
        "epymarl/stock-spread-allocated",
        "epymarl/qmix-spread",
        "epymarl/qmix-tag",
        "zoo/iql-spread",
        "zoo/qmix-tag-parallel",
    ]
)
def test_an_allocation_that_differs_between_agents_is_not_warned_about(name: str, finished: Results) -> None:
    assert ALIKE not in finished(name).said


# --- bad input ----------------------------------------------------------------------------------------

OURS = f"--config=iql --env-config=fairtest_mpe with {ON} {SHORT}"
SAVED = f"{OURS} evaluate=True checkpoint_path="
ODD = f"--config=iql --env-config=gymma with {ON} {SHORT} env_args.time_limit=5 env_args.key="
REFUSED = {  # command -> what the message must hold
    f"{OURS} fairtest_args.buget=5": ["fairtest_args.buget is not a setting", "Did you mean budget?"],
    f"{OURS} fairtest=false": ["fairtest='false'", "True or False"],
    f"{OURS} fairtest_args.theta=1.5": ["fairtest_args.theta=1.5", "a number in (0, 1]"],
    f"{OURS} fairtest_args.agents=[1,9]": ["fairtest_args.agents=[1, 9] names agent 9", "name some of 1 to"],
    f"{OURS} fairtest_args.budget=-5": ["fairtest_args.budget=-5", "a whole number of at least 1"],
    f"{OURS} agent_output_type=gaussian": ["'iql'", "agent_output_type='gaussian'", "q or pi_logits", "mappo"],
    f"{OURS} fairtest_args.execution=policy": ["execution=policy does not suit this team", "Q-values"],
    f"{OURS.replace('iql', 'mappo')} fairtest_args.execution=softmax": ["execution=softmax does not suit", "policy"],
    f"--config=iql --env-config=gymma with {ON} {SHORT}": ["env_args.key is missing", "env_args.key=lbforaging:"],
    f"{OURS} env_args.time_limit=None": ["env_args.time_limit is missing", "env_args.time_limit=50"],
    f"{OURS} hidden_dim=None": ["lacks hidden_dim (or rnn_hidden_dim)"],
    f"{ODD}lbforaging_odd:Broken-v0": ["the reward nan", "step 1, agent 1"],
    f"{ODD}CartPole-v1": ["'CartPole-v1' has a single agent"],
    f"{ODD}lbforaging_odd:Scalar-v0": ["pays one reward for the whole team", "one reward per agent"],
    f"{ODD}lbforaging_odd:Continuous-v0": ["'lbforaging_odd:Continuous-v0' has continuous actions", "discrete"],
    f"{OURS} fairtest_args.out=taken": ["The run folder 'taken' already exists", "Choose another fairtest_args.out"],
    f"{OURS} fairtest_args.out=plain/run": [
        "FairTest cannot write to",
        "'plain/run'",
        "Choose another fairtest_args.out",
    ],
    f"{SAVED}nowhere": ["checkpoint_path='nowhere'", "does not exist"],
    f"{SAVED}torn": ["agent.th' is not a readable checkpoint"],
    f"{SAVED}larger hidden_dim=32": ["fc1.weight has shape", "fc2.weight has shape", "fc2.bias has shape"],
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a host is started: odd environments, a folder and a file of the user's, saved teams."""
    for name, text in {
        "lbforaging_odd.py": ODD_ENVIRONMENTS,
        "taken/mine.txt": "mine",
        "plain": "mine",
        "torn/100/agent.th": "PK\x03\x04 and then nothing",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "larger" / "100").mkdir(parents=True)
    torch.save(random_weights(record_of("foraging", "mlp")), tmp_path / "larger" / "100" / "agent.th")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "lbforaging_odd", raising=False)
    return tmp_path


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc"}


def runner_of(host: Host, command: str, logger: Any) -> Any:
    """The host's own way to its runner, once sacred has read the command."""
    return attach._runner(host.runners["episode"], host, args=host_arguments(host, command), logger=logger)


@both_hosts
@pytest.mark.parametrize("command", REFUSED, ids=lambda command: command.split()[-1])
def test_bad_input_is_refused_before_training_in_one_message(command: str, host: Host, place: Path) -> None:
    before = bytes_in(place)
    with pytest.raises(PluginError) as refusal:
        runner_of(host, command, QuietLogger())
    for part in REFUSED[command]:
        assert part in str(refusal.value)
    assert str(refusal.value).count(REFUSED[command][0]) == 1
    assert not refusal.value.print_traceback, "sacred would show our own lines to the user"
    assert bytes_in(place) == before


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        pytest.param(name, REFUSED[command], marks=pytest.mark.jobs(name))
        for name, command in [("zoo/unknown", f"{OURS} fairtest_args.buget=5"), ("epymarl/single", f"{ODD}CartPole-v1")]
    ],
)
def test_a_host_ends_with_that_message_alone(name: str, parts: list[str], finished: Results) -> None:
    done = finished(name)
    assert done.code != 0
    for part in parts:
        assert part in done.said
    assert done.said.count(parts[0]) == 1
    assert "Traceback" not in done.output
    assert "Beginning training" not in done.said
    assert not done.run_folders()


@each(["zoo/typo", "epymarl/typo"])
def test_a_name_that_the_host_does_not_know_is_still_refused_by_sacred(name: str, finished: Results) -> None:
    done = finished(name)
    assert done.code != 0
    assert "ConfigAddedError" in done.said
    assert {"zoo/typo": "t_mxa", "epymarl/typo": "fairtes"}[name] in done.said
    assert "Beginning training" not in done.said


@each(["zoo/no-environment"])
def test_an_unknown_environment_is_the_hosts_own_error(name: str, finished: Results) -> None:
    done = finished(name)
    assert done.code != 0
    assert "Nothing" in done.said
    assert "NameNotFound" in done.said
    assert "recursion" not in done.said


LATE = {  # job -> what the message must hold
    "zoo/full": ["cannot write", "batches/00000.npz'", "File too large"],
    "epymarl/full-pool": ["cannot write", "training_pool.npz'", "File too large"],
    "zoo/nan": ["Q-values are not finite", "smaller learning rate"],
}


@each(LATE)
def test_an_error_after_training_keeps_the_team_and_says_how_to_test_it_again(name: str, finished: Results) -> None:
    done = finished(name)
    assert done.code != 0
    for part in LATE[name]:
        assert part in done.said
    assert "Traceback" not in done.output
    policy = done.run / "policy"
    assert f"The trained team is safe in '{policy.relative_to(done.folder)}'" in done.said.replace(
        f"{done.folder}/", ""
    )
    assert "fairtest run --policy" in done.said
    assert load_weights(policy / "agent.th")
    assert yaml.safe_load((policy / "policy.yaml").read_text())["training_steps"] >= 200
    assert not list(done.run.rglob("*.tmp")), "half-written files"
    assert not (done.run / "summary.json").exists()


@each(["zoo/stopped", "epymarl/stopped"])
def test_ctrl_c_after_training_says_last_what_was_found_and_how_to_go_on_and_that_works(
    name: str, finished: Results, tmp_path: Path
) -> None:
    done = finished(name)
    assert done.code == 128 + signal.SIGINT
    assert "Traceback" not in done.output
    assert "40 that were executed (budget 60). Resume with:" in done.said
    assert done.said.index("Exiting script") < done.said.index("Resume with:")
    assert done.output.strip().splitlines()[-1].strip().startswith("fairtest run --resume")
    assert json.loads((done.sacred / "run.json").read_text())["status"] == "COMPLETED"
    assert not list(done.sacred.glob("fairtest_*"))
    moved = replace(done, folder=Path(shutil.copytree(done.folder, tmp_path / "moved")))
    env = child_environment(tmp_path, moved.folder)  # its allocation lies in the folder that training was started in
    code, told = warm.finished(["run", "--resume", str(moved.run)], moved.folder, env, tmp_path / "said.txt")
    assert code == 0, told
    assert moved.summary()["executed_episodes"] == 60
    assert str(moved.sacred) in told
    for file in ("summary.json", "failures.npz", "manifest.json"):
        assert (moved.sacred / f"fairtest_{file}").read_bytes() == (moved.run / file).read_bytes()


BREAKING = """
left = {left}


def allocation(state, reward):
    global left
    left -= 1
    if not left:
        raise LookupError("a mistake of the user's")
    return reward
"""


@both_hosts
def test_an_allocation_that_breaks_during_training_ends_recording_and_nothing_else(
    host: Host, place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.delitem(sys.modules, "breaking", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(place))  # in the current folder it would be refused
    (place / "breaking.py").write_text(BREAKING.format(left=8 * 25 + 30))  # after the look at random agents
    training = training_of(host, f"{OURS} fairtest_args.allocation=breaking:allocation")
    for number in range(4):
        training.episode(number)
    assert [m for m in caplog.messages if "LookupError: a mistake of the user's" in m and "Training continues" in m]
    assert len([m for m in caplog.messages if "records no more" in m]) == 1
    assert training.runner.t_env == 100
    training.runner.close_env()
    assert any("no sample of this training" in m for m in caplog.messages)
    (run,) = (path.parent for path in place.rglob("summary.json"))
    assert load_weights(run / "policy" / "agent.th")
    assert not (run / "policy" / "training_pool.npz").exists()


@both_hosts
def test_ctrl_c_while_the_team_is_saved_waits_until_it_is(
    host: Host, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    training = training_of(host, OURS)
    training.episode(0)
    save = torch.save

    def interrupted(*given: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        save(*given)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(torch, "save", interrupted)
    training.runner.close_env()
    said = capsys.readouterr().out
    assert "The trained team is safe in" in said
    (policy,) = (path.parent for path in place.rglob("policy.yaml"))
    assert policy.name == "policy"
    assert f"fairtest run --policy {policy.relative_to(place)}" in said.replace(f"{place}/", "")
    assert sorted(path.name for path in policy.iterdir()) == ["agent.th", "learner.th", "policy.yaml"]
    weights = load_weights(policy / "agent.th")
    assert all(torch.equal(weights[name], value) for name, value in training.mac.agent.state_dict().items())
    assert load_record(policy).training_steps == 25
    assert not list(policy.parent.glob(".policy*"))


@both_hosts
def test_testing_begins_with_the_expected_time_and_ends_with_the_result(
    host: Host, place: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    training = training_of(host, OURS)
    training.episode(0)
    training.runner.close_env()
    begins = [m for m in caplog.messages if "begins to test the team: method random, 60 episodes" in m]
    assert len(begins) == 1
    assert re.search(r"at most 25 steps. It should take about \d+ s", begins[0])
    assert "FairTest" in capsys.readouterr().out


def training_of(host: Host, command: str) -> Training:
    made = partial(attach._runner, host.runners["episode"], host)
    args = host_arguments(host, command)
    args.local_results_path = "results"
    return build_training(host, args, made)  # type: ignore[arg-type]


def test_the_demo_leaves_the_folder_of_a_run_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    assert main(["demo", "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert "is the folder of a run, and a run is never overwritten. Choose another --out." in told
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
