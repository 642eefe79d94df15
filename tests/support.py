"""What the tests share: training runs of the real hosts as jobs, and small teams in real environments."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import epymarl_fairtest  # noqa: F401  (registers the environments)
from epymarl_fairtest.core.episodes import Episodes, random_tests
from epymarl_fairtest.engine.contract import ActionRule
from epymarl_fairtest.engine.lockstep import Lockstep
from epymarl_fairtest.host.build import load_host
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.tasks import task_for
from epymarl_fairtest.tasks.allocation import resolve_allocation
from epymarl_fairtest.tasks.world import World
from epymarl_fairtest.team.checkpoint import PolicyRecord, expected_shapes, rebuild, save_policy
from epymarl_fairtest.team.policy import NetworkPolicy
from epymarl_fairtest.team.sample import TrainingEpisodes, joined

NO_CHECKOUT = "no EPyMARL checkout known: set EPYMARL_HOME or run fairtest install CHECKOUT"
TESTS = Path(__file__).resolve().parent

# --- training runs of the hosts -----------------------------------------------------------------------

SHORT = (
    "use_cuda=False seed=1 t_max=200 batch_size=4 test_nepisode=2 epsilon_anneal_time=1000"
    " fairtest_args.method=random fairtest_args.budget=60 fairtest_args.batch=40 fairtest_args.report=False"
)
PAGE = "fairtest_args.report=True"  # as it is unless a test has no use for it
LONG = (
    "t_max=3000 batch_size=8 save_model=True save_model_interval=500 test_interval=1500 test_nepisode=2"
    " log_interval=500 runner_log_interval=500 learner_log_interval=500"
)
PARALLEL = "runner=parallel batch_size_run=2"
SEARCH = "fairtest_args.method=fairtest fairtest_args.budget=300"
ON = "fairtest=True"

ODD_ENVIRONMENTS = '''
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Tuple


class Odd(gymnasium.Env):
    """Two agents in a world that always looks alike; `pays` and `moves` make it odd."""

    n_agents = 2
    observation_space = Tuple([Box(-1, 1, (3,), np.float32)] * 2)

    def __init__(self, pays="each", moves="discrete"):
        self.pays = pays
        self.action_space = Tuple([Discrete(3) if moves == "discrete" else Box(-1, 1, (2,), np.float32)] * 2)

    def seed(self, seed=None):
        return [seed]

    def reset(self, seed=None, options=None):
        return self._seen(), {}

    def _seen(self):
        return tuple(np.zeros(3, np.float32) for _ in range(2))

    def step(self, actions):
        return self._seen(), (1.0 if self.pays == "all" else [1.0, 0.0]), False, False, {}


gymnasium.register("Scalar-v0", Odd, kwargs={"pays": "all"}, disable_env_checker=True)
gymnasium.register("Continuous-v0", Odd, kwargs={"moves": "continuous"}, disable_env_checker=True)
'''

STOPPING = """
import signal
from pathlib import Path


def allocation(state, reward):
    # Ctrl-C once the first batch of tests is on disk, as the user would press it; never again
    first = next(Path().rglob("batches/00000.npz"), None)
    if first is not None and not Path("stopped").exists():
        Path("stopped").touch()
        signal.raise_signal(signal.SIGINT)
    return reward
"""


@dataclass(frozen=True)
class Job:
    """One command of a host with FairTest attached, in a folder of its own."""

    name: str
    arguments: str
    installed: bool = False  # `fairtest install` and plain python instead of `fairtest launch`
    after: str | None = None  # the job whose models `{models}` in the arguments stands for
    without_pool: bool = False  # those models are copied and the training pool left out
    files: Mapping[str, str] = field(default_factory=dict)  # written into the folder first
    largest_file: int | None = None  # bytes; what RLIMIT_FSIZE refuses beyond looks like a full disk

    @property
    def host(self) -> str:
        return self.name.split("/")[0]


def _jobs() -> dict[str, Job]:
    odd = {"lbforaging_odd.py": ODD_ENVIRONMENTS}
    ours, odd_key = "--config=iql --env-config=fairtest_mpe with " + ON, "--config=iql --env-config=gymma with " + ON
    ctrl_c = "fairtest_args.allocation=pressing:allocation"
    without_epsilon = SHORT.replace("epsilon_anneal_time=1000", "")
    listed = [
        # Long ones first. Training with and without FairTest, same seed:
        Job("zoo/qmix-foraging", f"--config=qmix --env-config=fairtest_lbf with {ON} {SHORT} {LONG}"),
        Job("zoo/qmix-foraging-off", f"--config=qmix --env-config=fairtest_lbf with {SHORT} {LONG}"),
        Job(
            "epymarl/qmix-foraging-parallel",
            f"--config=qmix --env-config=fairtest_lbf with {ON} {SHORT} {LONG} {PARALLEL} use_rnn=True"
            " fairtest_args.training_pool=20",
        ),
        Job(
            "epymarl/qmix-foraging-parallel-off",
            f"--config=qmix --env-config=fairtest_lbf with {SHORT} {LONG} {PARALLEL} use_rnn=True",
        ),
        Job("epymarl/qmix-spread", f"--config=qmix --env-config=fairtest_mpe with {ON} {SHORT} {LONG}"),
        Job("epymarl/qmix-spread-off", f"--config=qmix --env-config=fairtest_mpe with {SHORT} {LONG}"),
        # A saved team, with and without the pool of its training:
        Job(
            "zoo/evaluate",
            f"--config=qmix --env-config=fairtest_lbf with {ON} {SHORT} evaluate=True checkpoint_path={{models}}",
            after="zoo/qmix-foraging",
        ),
        Job(
            "zoo/evaluate-no-pool",
            f"--config=qmix --env-config=fairtest_lbf with {ON} {SHORT} evaluate=True checkpoint_path={{models}}",
            after="zoo/qmix-foraging",
            without_pool=True,
        ),
        Job(
            "epymarl/evaluate",
            f"--config=qmix --env-config=fairtest_mpe with {ON} {SHORT} evaluate=True checkpoint_path={{models}}",
            after="epymarl/qmix-spread",
        ),
        Job(
            "epymarl/evaluate-no-pool",
            f"--config=qmix --env-config=fairtest_mpe with {ON} {SHORT} evaluate=True checkpoint_path={{models}}",
            after="epymarl/qmix-spread",
            without_pool=True,
        ),
        # Algorithms, tasks and runners:
        Job("zoo/qmix-tag-parallel", f"--config=qmix --env-config=fairtest_pp with {ON} {SHORT} {PARALLEL}"),
        Job("zoo/iql-spread", f"--config=iql --env-config=fairtest_mpe with {ON} {SHORT} {SEARCH} {PAGE}"),
        Job("zoo/iql_ns-foraging", f"--config=iql_ns --env-config=fairtest_lbf with runner=fairtest {SHORT}"),
        Job(
            "zoo/stock-foraging",
            f"--config=vdn --env-config=gymma with {ON} env_args.key=lbforaging:Foraging-8x8-3p-3f-v3"
            f" env_args.time_limit=50 {SHORT}",
        ),
        Job("epymarl/qmix-tag", f"--config=qmix --env-config=fairtest_pp with {ON} {SHORT}"),
        Job("epymarl/iql-spread", f"--config=iql --env-config=fairtest_mpe with {ON} {SHORT}"),
        Job("epymarl/iql-tag", f"--config=iql --env-config=fairtest_pp with {ON} {SHORT} {PAGE}"),
        Job("epymarl/iql-foraging", f"--config=iql --env-config=fairtest_lbf with {ON} {SHORT}"),
        Job("epymarl/vdn-tag", f"--config=vdn --env-config=fairtest_pp with runner=fairtest {SHORT}"),
        Job("epymarl/qmix_ns-foraging", f"--config=qmix_ns --env-config=fairtest_lbf with {ON} {SHORT}"),
        Job("epymarl/iql_ns-spread", f"--config=iql_ns --env-config=fairtest_mpe with {ON} {SHORT}"),
        Job(
            "epymarl/installed",
            f"--config=qmix --env-config=gymma with {ON} env_args.key=lbforaging:Foraging-8x8-3p-3f-v3"
            f" env_args.time_limit=50 {SHORT} {PAGE}",
            installed=True,
        ),
        # Environments that pay all agents the same:
        Job(
            "epymarl/stock-spread",
            f"--config=iql --env-config=gymma with {ON} env_args.key=pz-mpe-simple-spread-v3 env_args.time_limit=25"
            f" {SHORT}",
        ),
        Job(
            "epymarl/stock-spread-allocated",
            f"--config=iql --env-config=gymma with {ON} env_args.key=pz-mpe-simple-spread-v3 env_args.time_limit=25"
            f" {SHORT} {PAGE} fairtest_args.allocation=nearest_landmark",
        ),
        Job(
            "epymarl/stock-tag",
            f"--config=iql --env-config=gymma with {ON} env_args.key=pz-mpe-simple-tag-v3 env_args.time_limit=25"
            f" env_args.pretrained_wrapper=PretrainedTag {SHORT} t_max=20",
        ),
        # Bad input that only shows when training is over:
        Job("zoo/full", f"{ours} {SHORT}", largest_file=200_000),
        Job("epymarl/full-pool", f"{ours} {SHORT} t_max=1500 hidden_dim=32", largest_file=70_000),
        Job("zoo/nan", f"{ours} {SHORT} lr=1e30"),
        Job("zoo/stopped", f"{ours} {SHORT} {ctrl_c}", files={"pressing.py": STOPPING}),
        Job("epymarl/stopped", f"{ours} {SHORT} {ctrl_c}", files={"pressing.py": STOPPING}),
        # Bad input that shows before training:
        Job("zoo/unknown", f"{ours} {SHORT} fairtest_args.buget=5"),
        Job("zoo/typo", f"{ours} {SHORT} t_mxa=5"),
        Job("epymarl/typo", "--config=iql --env-config=fairtest_mpe with fairtes=True use_cuda=False t_max=200"),
        Job("zoo/theta", f"{ours} {SHORT} fairtest_args.theta=1.5"),
        Job("zoo/budget", f"{ours} {SHORT} fairtest_args.budget=-5"),
        Job("zoo/switch", f"--config=iql --env-config=fairtest_mpe with fairtest=false {SHORT}"),
        Job("zoo/mappo", f"--config=mappo --env-config=fairtest_mpe with {ON} {without_epsilon}"),
        Job("zoo/scalar", f"{odd_key} env_args.key=lbforaging_odd:Scalar-v0 env_args.time_limit=5 {SHORT}", files=odd),
        Job(
            "zoo/continuous",
            f"{odd_key} env_args.key=lbforaging_odd:Continuous-v0 env_args.time_limit=5 {SHORT}",
            files=odd,
        ),
        Job("zoo/exists", f"{ours} {SHORT} fairtest_args.out=taken", files={"taken/mine.txt": "mine"}),
        Job("zoo/below-a-file", f"{ours} {SHORT} fairtest_args.out=plain/run", files={"plain": "mine"}),
        Job("zoo/no-checkpoint", f"{ours} {SHORT} evaluate=True checkpoint_path=nowhere"),
        Job(
            "zoo/torn-checkpoint",
            f"{ours} {SHORT} evaluate=True checkpoint_path=torn",
            files={"torn/100/agent.th": "PK\x03\x04 and then nothing"},
        ),
        Job(
            "epymarl/other-size",
            f"--config=qmix --env-config=fairtest_lbf with {ON} {SHORT} evaluate=True checkpoint_path={{models}}"
            " hidden_dim=32",
            after="epymarl/qmix-spread",
        ),
        Job("zoo/no-environment", f"{odd_key} env_args.key=lbforaging:Nothing-v3 env_args.time_limit=5 {SHORT}"),
        Job("epymarl/single", f"{odd_key} env_args.key=CartPole-v1 env_args.time_limit=5 {SHORT}"),
    ]
    return {job.name: job for job in listed}


JOBS = _jobs()


@dataclass(frozen=True)
class Finished:
    """What a job left behind."""

    job: Job
    folder: Path
    code: int
    output: str

    @property
    def said(self) -> str:
        """The output with every run of white space as one blank: loggers fold long lines."""
        return " ".join(self.output.split())

    def run_folders(self) -> list[Path]:
        return sorted(path.parent for path in self.folder.glob("results/**/policy") if path.is_dir())

    @property
    def run(self) -> Path:
        (run,) = self.run_folders()
        return run

    @property
    def sacred(self) -> Path:
        (run,) = self.folder.glob("results/sacred/*/*/1")
        return run

    @property
    def models(self) -> Path:
        """The folder whose subfolders are named by training steps."""
        (models,) = {
            path.parent.parent for path in self.folder.glob("results/**/agent.th") if path.parent.name.isdigit()
        }
        return models

    def info(self) -> dict[str, Any]:
        return json.loads((self.sacred / "info.json").read_text())

    def metrics(self) -> dict[str, Any]:
        return json.loads((self.sacred / "metrics.json").read_text())

    def statistics(self) -> dict[str, list[tuple[int, float]]]:
        """What was logged, as (training step, value); not when it was."""
        return {
            name: list(zip(logged["steps"], logged["values"], strict=True)) for name, logged in self.metrics().items()
        }

    def summary(self) -> dict[str, Any]:
        return json.loads((self.run / "summary.json").read_text())


class Workshop:
    """Runs the jobs that the collected tests need, several at a time, while other tests run."""

    def __init__(self, root: Path, checkout: Path | None) -> None:
        self._root, self._checkout = root, checkout
        # PyMARLzoo+ sleeps for ten seconds at the end of every run: more workers than cores.
        self._pool = ThreadPoolExecutor(max_workers=(os.cpu_count() or 2) + 2)
        self._futures: dict[str, Future[Finished]] = {}
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def can(self, name: str) -> bool:
        return JOBS[name].host != "epymarl" or self._checkout is not None

    def order(self, names: Iterable[str]) -> None:
        wanted = set(names) | {JOBS[name].after for name in names if JOBS[name].after}
        for name in JOBS:  # a job comes after the one it needs
            if name in wanted and name not in self._futures and self.can(name):
                self._futures[name] = self._pool.submit(self._work, JOBS[name])

    def result(self, name: str) -> Finished:
        if name not in self._futures:
            self.order([name])
        return self._futures[name].result()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for child in self._children:
                child.kill()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _work(self, job: Job) -> Finished:
        folder = self._root / job.name.replace("/", "-")
        folder.mkdir()
        for name, text in job.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        environment = child_environment(self._root, folder)
        if job.host == "epymarl":
            assert self._checkout is not None
            shutil.copytree(self._checkout / "src", folder / "src")
            program = "src/main.py"
        else:
            program = "pymarlzooplus.main"
        arguments = job.arguments.split()
        if job.after:
            models = self._futures[job.after].result().models
            if job.without_pool:
                models = Path(shutil.copytree(models, folder / "models"))
                (models / "training_pool.npz").unlink()
            arguments = [argument.format(models=models) for argument in arguments]
        if job.installed:
            # Nothing here may reach the user's own register of checkouts.
            environment["XDG_CONFIG_HOME"] = str(folder / "config")
            code, output = self._call([*FAIRTEST, "install", "."], folder, environment)
            assert code == 0, output
            command = [sys.executable, program, *arguments]
        else:
            command = [*FAIRTEST, "launch", "--", program, *arguments]
        if job.largest_file is not None:
            command = [sys.executable, "-c", LIMITED, str(job.largest_file), *command]
        code, output = self._call(command, folder, environment)
        return Finished(job, folder, code, output)

    def _call(self, command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
        with self._lock:
            if self._closed:
                raise RuntimeError("the tests are over")
            child = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            self._children.add(child)
        output, _ = child.communicate(timeout=600)
        with self._lock:
            self._children.remove(child)
        return child.returncode, output.decode(errors="replace")


FAIRTEST = [sys.executable, "-m", "epymarl_fairtest"]
LIMITED = (
    "import os, resource, sys; limit = int(sys.argv[1]);"
    " resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)); os.execv(sys.argv[2], sys.argv[2:])"
)
"""Every file of the child may have at most that many bytes: a real OSError where the disk would be full."""


def child_environment(private: Path, *modules: Path, **more: str) -> dict[str, str]:
    """This environment without the user's checkout; wide lines, because PyMARLzoo+ folds them."""
    kept = {name: value for name, value in os.environ.items() if name not in ("EPYMARL_HOME", "XDG_CONFIG_HOME")}
    path = os.pathsep.join([*map(str, modules), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "XDG_CONFIG_HOME": str(private / "config"), "COLUMNS": "1000", "PYTHONPATH": path, **more}


def stock_copy(checkout: Path, root: Path) -> Path:
    """The checkout's sources as upstream ships them: FairTest taken out if the user installed it."""
    shutil.copytree(checkout / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    command = [*FAIRTEST, "install", "--uninstall", str(root)]
    subprocess.run(command, env=child_environment(root), check=True, capture_output=True)
    return root


@contextmanager
def in_process_epymarl(copy: Path) -> Iterator[Host]:
    """EPyMARL's modules in this process, from a copy of the checkout; all traces are removed again."""
    modules, path, finders, known = set(sys.modules), list(sys.path), list(sys.meta_path), set(gymnasium.registry)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPYMARL_HOME", str(copy))
        try:
            yield load_host("epymarl")
        finally:
            sys.path[:], sys.meta_path[:] = path, finders
            for name in set(gymnasium.registry) - known:
                del gymnasium.registry[name]
            for name in set(sys.modules) - modules:
                file = getattr(sys.modules[name], "__file__", None) or ""
                if file.startswith(str(copy)) or name.startswith(("smaclite", "envs", "pettingzoo.mpe")):
                    del sys.modules[name]


# --- small teams in real environments -----------------------------------------------------------------

KEYS = {"spread": "mpe-spread-v0", "tag": "mpe-tag-v0", "foraging": "lbforaging-v0"}
LIMITS = {"spread": 25, "tag": 50, "foraging": 50}
AGENTS = ("mlp", "gru")


@cache
def environment(task: str) -> Any:
    return gymnasium.make(f"epymarl_fairtest:{KEYS[task]}", disable_env_checker=True)


def record_of(task: str, agent: str, **changes: Any) -> PolicyRecord:
    env = environment(task)
    values: dict[str, Any] = {
        "algorithm": "iql",
        "key": f"epymarl_fairtest:{KEYS[task]}",
        "time_limit": LIMITS[task],
        "n_agents": len(env.action_space.spaces),
        "n_actions": int(env.action_space.spaces[0].n),
        "obs_size": max(space.shape[0] for space in env.observation_space),
        "hidden_dim": 16,
        "use_rnn": agent == "gru",
        "obs_last_action": agent == "gru",
        "obs_agent_id": True,
    }
    return PolicyRecord(**{**values, **changes})


def random_weights(record: PolicyRecord, seed: int = 0, *, separate: bool = False) -> dict[str, torch.Tensor]:
    """Large enough that agents with these weights do different things in different places."""
    generator = torch.Generator().manual_seed(seed)
    shapes = expected_shapes(record, separate=separate)
    return {name: torch.randn(shape, generator=generator) * 0.7 for name, shape in shapes.items()}


def random_policy(record: PolicyRecord, seed: int = 0) -> NetworkPolicy:
    return rebuild(random_weights(record, seed), record)


def training_pool() -> TrainingEpisodes:
    """Forty training episodes of three agents; in every other one the third receives more."""
    generator = np.random.default_rng(0)
    return joined(
        {
            i + 1: (
                generator.normal(size=(8, 3, 5)).astype(np.float32),
                -generator.random((8, 3)) * [1, 1, 3 if i % 2 else 1],
            )
            for i in range(40)
        }
    )


def policy_folder(folder: Path, task: str = "spread", agent: str = "mlp", **changes: Any) -> Path:
    """A saved team with random weights."""
    record = record_of(task, agent, **changes)
    save_policy(folder, record, random_weights(record))
    return folder


def engine_of(
    task: str, agent: str = "mlp", *, kind: str = "epsilon_greedy", epsilon: float = 0.3, policy: Any = None
) -> Lockstep:
    """A fresh engine on bare environments; random weights unless a policy is given."""
    record = record_of(task, agent)
    known = task_for(environment(task))
    allocate = resolve_allocation(known, "env")
    how = ActionRule(kind, epsilon, 1.0, np.ones((record.n_agents, record.n_actions), bool))
    return Lockstep(
        lambda: World(
            gymnasium.make(record.key, disable_env_checker=True),
            known,
            allocate,
            limit=record.time_limit,
            obs_size=record.obs_size,
        ),
        policy or random_policy(record),
        how,
        limit=record.time_limit,
        state_size=known.state_size,
    )


def some_tests(task: str, count: int, seed: int = 5) -> Any:
    return random_tests(count, task_for(environment(task)).state_size, np.random.default_rng(seed))


def arrays(value: Any) -> dict[str, np.ndarray]:
    return {f.name: getattr(value, f.name) for f in fields(value)}


def assert_identical(a: Episodes, b: Episodes) -> None:
    """Every array, byte for byte."""
    for name, left in arrays(a).items():
        right = getattr(b, name)
        assert left.dtype == right.dtype, name
        assert left.shape == right.shape, name
        assert left.tobytes() == right.tobytes(), f"{name} differs in rows {differing(left, right)}"


def differing(a: np.ndarray, b: np.ndarray) -> list[int]:
    return [row for row in range(len(a)) if a[row].tobytes() != b[row].tobytes()][:10]


def digest_of(episodes: Episodes) -> str:
    sha = hashlib.sha256()
    for name, value in sorted(arrays(episodes).items()):
        sha.update(f"{name} {value.dtype} {value.shape}".encode())
        sha.update(np.ascontiguousarray(value).tobytes())
    return sha.hexdigest()


def print_digests() -> None:
    """What a fresh process makes of the same tests, one line per task and kind of agent."""
    torch.set_num_threads(1)
    for task in KEYS:
        for agent in AGENTS:
            print(task, agent, digest_of(engine_of(task, agent).execute(some_tests(task, 7))))
