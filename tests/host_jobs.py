"""Training runs of the real hosts, as jobs that several tests look at."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import warm
from support import FAIRTEST, child_environment

from epymarl_fairtest.host.build import configuration, load_host
from epymarl_fairtest.host.hosts import Host

NO_CHECKOUT = "no EPyMARL checkout known: set EPYMARL_HOME or run fairtest install CHECKOUT"

# --- the jobs ------------------------------------------------------------------------------------------

SHORT = (
    "use_cuda=False seed=1 t_max=200 batch_size=4 test_nepisode=2 epsilon_anneal_time=1000"
    " fairtest_args.method=random fairtest_args.budget=60 fairtest_args.batch=40 fairtest_args.report=False"
    " fairtest_args.curve_episodes=0 fairtest_args.explain=0 fairtest_args.random_team=10"
)
BRIEF = SHORT.replace(" epsilon_anneal_time=1000", "")  # for algorithms that do not explore by epsilon
PAGE = "fairtest_args.report=True"  # as it is unless a test has no use for it
CURVE = "fairtest_args.curve_episodes=30"
LONG = (
    "t_max=600 batch_size=4 save_model=True save_model_interval=100 test_interval=300 test_nepisode=2"
    " log_interval=100 runner_log_interval=100 learner_log_interval=100"
    f" {CURVE}"
)
PARALLEL = "runner=parallel batch_size_run=2"
ACTORS = "batch_size=4 buffer_size=4 batch_size_run=2"  # of an algorithm that learns from its last episodes alone
ALONE = "runner=episode batch_size_run=1 batch_size=4 buffer_size=4"
PAC = (
    ("pac_ns", "pac_dcg_ns") if find_spec("einops") and find_spec("torch_scatter") else ()
)  # what EPyMARL needs for it
ACTOR_CRITIC = {  # besides mappo and ippo, which are trained longer
    "epymarl": ("mappo_ns", "ippo_ns", "maa2c", "maa2c_ns", "ia2c", "ia2c_ns", "coma", "coma_ns", "maddpg", "maddpg_ns",
                *PAC),
    "zoo": ("ippo_ns", "maa2c", "ia2c", "coma", "maddpg"),
}  # fmt: skip
SEARCH = "fairtest_args.method=fairtest fairtest_args.budget=220 fairtest_args.explain=2"
ON = "fairtest=True"
FORAGING, SPREAD, TAG = "lbforaging:Foraging-8x8-3p-3f-v3", "pz-mpe-simple-spread-v3", "pz-mpe-simple-tag-v3"

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
        self.steps = 0
        return self._seen(), {}

    def _seen(self):
        return tuple(np.zeros(3, np.float32) for _ in range(2))

    def step(self, actions):
        self.steps += 1
        pays = {"all": 1.0, "each": [1.0, 0.0], "nothing": [1.0, float("nan") if self.steps == 2 else 0.0]}
        return self._seen(), pays[self.pays], False, False, {}


gymnasium.register("Scalar-v0", Odd, kwargs={"pays": "all"}, disable_env_checker=True)
gymnasium.register("Broken-v0", Odd, kwargs={"pays": "nothing"}, disable_env_checker=True)
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
    slow: bool = True  # looked at by `make test-slow` alone
    fresh: bool = False  # a Python of its own, with the host's pauses and plots; others are forked (see warm.py)
    installed: bool = False  # `fairtest install` and plain python instead of `fairtest launch`
    after: str | None = None  # the job whose models `{models}` in the arguments stands for
    without_pool: bool = False  # those models are copied and the training pool left out
    files: Mapping[str, str] = field(default_factory=dict)  # written into the folder first
    largest_file: int | None = None  # bytes; what RLIMIT_FSIZE refuses beyond looks like a full disk

    @property
    def host(self) -> str:
        return self.name.split("/")[0]


def _jobs() -> dict[str, Job]:
    lbf, mpe, pp = (f"--env-config=fairtest_{task} with" for task in ("lbf", "mpe", "pp"))
    saved = f"--config=qmix {{}} {ON} {SHORT} evaluate=True checkpoint_path={{{{models}}}}"
    stock = f"--env-config=gymma with {ON} env_args.key={{}} env_args.time_limit={{}} {SHORT}"
    ctrl_c = f"--config=iql {mpe} {ON} {SHORT} fairtest_args.allocation=pressing:allocation"
    pressing = {"pressing.py": STOPPING}
    listed = [
        # Long ones first. Training with and without FairTest, same seed; the fresh ones with other hash seeds:
        Job("zoo/qmix-foraging", f"--config=qmix {lbf} {ON} {SHORT} {LONG}", fresh=True),
        Job("zoo/qmix-foraging-off", f"--config=qmix {lbf} {SHORT} {LONG}", fresh=True),
        Job(
            "epymarl/qmix-foraging-parallel",
            f"--config=qmix {lbf} {ON} {SHORT} {LONG} {PARALLEL} use_rnn=True fairtest_args.training_pool=5",
        ),
        Job(
            "epymarl/qmix-foraging-parallel-off",
            f"--config=qmix {lbf} {SHORT} {LONG} {PARALLEL} use_rnn=True",
        ),
        Job("epymarl/qmix-spread", f"--config=qmix {mpe} {ON} {SHORT} {LONG}"),
        Job("epymarl/qmix-spread-off", f"--config=qmix {mpe} {SHORT} {LONG}"),
        Job("epymarl/iql-spread-parallel", f"--config=iql {mpe} {ON} {SHORT} {LONG} {PARALLEL}", fresh=True),
        Job("epymarl/iql-spread-parallel-off", f"--config=iql {mpe} {SHORT} {LONG} {PARALLEL}", fresh=True),
        Job("epymarl/mappo-foraging-parallel", f"--config=mappo {lbf} {ON} {BRIEF} {LONG} {ACTORS}"),
        Job("epymarl/mappo-foraging-parallel-off", f"--config=mappo {lbf} {BRIEF} {LONG} {ACTORS}"),
        Job("epymarl/ippo-spread", f"--config=ippo {mpe} {ON} {BRIEF} {LONG} {ALONE}"),
        Job("epymarl/ippo-spread-off", f"--config=ippo {mpe} {BRIEF} {LONG} {ALONE}"),
        Job("epymarl/ippo-foraging-parallel", f"--config=ippo {lbf} {ON} {BRIEF} {LONG} {ACTORS}"),
        Job("epymarl/ippo-foraging-parallel-off", f"--config=ippo {lbf} {BRIEF} {LONG} {ACTORS}"),
        Job("zoo/mappo-foraging", f"--config=mappo {lbf} {ON} {BRIEF} {LONG} {ALONE}"),
        Job("zoo/mappo-foraging-off", f"--config=mappo {lbf} {BRIEF} {LONG} {ALONE}"),
        # A saved team, with and without the pool of its training:
        Job("zoo/evaluate", saved.format(lbf), after="zoo/qmix-foraging"),
        Job("zoo/evaluate-no-pool", saved.format(lbf), after="zoo/qmix-foraging", without_pool=True),
        Job("epymarl/evaluate", saved.format(mpe), after="epymarl/qmix-spread"),
        Job("epymarl/evaluate-no-pool", saved.format(mpe), after="epymarl/qmix-spread", without_pool=True),
        Job(
            "epymarl/mappo-evaluate",
            f"{saved.format(lbf).replace('qmix', 'mappo').replace(SHORT, BRIEF)} {ACTORS}",
            after="epymarl/mappo-foraging-parallel",
        ),
        # Algorithms, tasks and runners:
        Job("zoo/qmix-tag-parallel", f"--config=qmix {pp} {ON} {SHORT} {PARALLEL}", slow=False),
        Job("zoo/iql-spread", f"--config=iql {mpe} {ON} {SHORT} {SEARCH} {PAGE}"),
        Job("zoo/iql_ns-foraging", f"--config=iql_ns {lbf} runner=fairtest {SHORT}", slow=False),
        Job("zoo/stock-foraging", f"--config=vdn {stock.format(FORAGING, 50)}"),
        Job("epymarl/qmix-tag", f"--config=qmix {pp} {ON} {SHORT}"),
        Job("epymarl/iql-spread", f"--config=iql {mpe} {ON} {SHORT}"),
        Job("epymarl/iql-tag", f"--config=iql {pp} {ON} {SHORT} {PAGE}", slow=False),
        Job("epymarl/iql-foraging", f"--config=iql {lbf} {ON} {SHORT}"),
        Job("epymarl/vdn-tag", f"--config=vdn {pp} runner=fairtest {SHORT}"),
        Job("epymarl/qmix_ns-foraging", f"--config=qmix_ns {lbf} {ON} {SHORT}"),
        Job("epymarl/iql_ns-spread", f"--config=iql_ns {mpe} {ON} {SHORT}"),
        *(
            Job(f"{host}/{name}-spread", f"--config={name} {mpe} {ON} {BRIEF} {ALONE if 'maddpg' in name else ACTORS}")
            for host, names in ACTOR_CRITIC.items()
            for name in names
        ),
        Job("epymarl/installed", f"--config=qmix {stock.format(FORAGING, 50)} {PAGE}", installed=True),
        # Environments that pay all agents the same:
        Job("epymarl/stock-spread", f"--config=iql {stock.format(SPREAD, 25)}"),
        Job(
            "epymarl/stock-spread-allocated",
            f"--config=iql {stock.format(SPREAD, 25)} {PAGE} fairtest_args.allocation=nearest_landmark",
        ),
        Job(
            "epymarl/stock-tag",
            f"--config=iql {stock.format(TAG, 25)} env_args.pretrained_wrapper=PretrainedTag t_max=20",
        ),
        # Bad input that only shows when training is over:
        Job("zoo/full", f"--config=iql {mpe} {ON} {SHORT}", largest_file=200_000),
        Job(
            "epymarl/full-pool",
            f"--config=iql {mpe} {ON} {SHORT} t_max=1500 hidden_dim=32",
            largest_file=70_000,
        ),
        Job("zoo/nan", f"--config=iql {mpe} {ON} {SHORT} lr=1e30", slow=False),
        Job("zoo/stopped", ctrl_c, files=pressing),
        Job("epymarl/stopped", ctrl_c, files=pressing, slow=False),
        # Bad input that shows before training; most of it is refused in process (test_plugin.py):
        Job("zoo/unknown", f"--config=iql {mpe} {ON} {SHORT} fairtest_args.buget=5", slow=False),
        Job(
            "epymarl/single",
            f"--config=iql --env-config=gymma with {ON} env_args.key=CartPole-v1 env_args.time_limit=5 {SHORT}",
            slow=False,
        ),
        Job("zoo/typo", f"--config=iql {mpe} {ON} {SHORT} t_mxa=5", slow=False),
        Job("epymarl/typo", f"--config=iql {mpe} fairtes=True use_cuda=False t_max=200", slow=False),
        Job("zoo/no-environment", f"--config=iql {stock.format('lbforaging:Nothing-v3', 5)}", slow=False),
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
            path.parent.parent
            for path in self.folder.glob("results/**/agent.th")
            if path.parent.name.isdigit() and path.parent.parent.name != "curve"  # what FairTest keeps
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
        self._pool = ThreadPoolExecutor(max_workers=(os.cpu_count() or 2) + 1)  # some jobs pause
        self._futures: dict[str, Future[Finished]] = {}
        self._children: set[subprocess.Popen[bytes] | BaseProcess] = set()
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
            code, output = self._fresh([*FAIRTEST, "install", "."], folder, environment)
            assert code == 0, output
            code, output = self._fresh([sys.executable, program, *arguments], folder, environment)
        elif job.fresh:
            code, output = self._fresh([*FAIRTEST, "launch", "--", program, *arguments], folder, environment)
        else:
            words = ["launch", "--", program, *arguments]
            code, output = self._forked(words, folder, environment, job.largest_file)
        return Finished(job, folder, code, output)

    def _fresh(self, command: list[str], folder: Path, environment: dict[str, str]) -> tuple[int, str]:
        with self._child():
            child = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            self._children.add(child)
        output, _ = child.communicate(timeout=600)
        with self._lock:
            self._children.remove(child)
        return child.returncode, output.decode(errors="replace")

    def _forked(
        self, words: list[str], folder: Path, environment: dict[str, str], largest_file: int | None
    ) -> tuple[int, str]:
        said = folder.with_suffix(".txt")
        with self._child():
            child = warm.start(words, folder, environment, said, largest_file=largest_file)
            self._children.add(child)
        child.join(timeout=600)
        with self._lock:
            self._children.remove(child)
        assert child.exitcode is not None, f"{folder.name} does not end:\n{said.read_text(errors='replace')}"
        return child.exitcode, said.read_text(errors="replace")

    @contextmanager
    def _child(self) -> Iterator[None]:
        """A child may be started: nobody closes the workshop meanwhile."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the tests are over")
            yield


# --- the hosts in this process -------------------------------------------------------------------------


def host_arguments(host: Host, command: str) -> Any:
    """What the host's main makes of a command line; values are read as sacred reads them."""
    options, _, assignments = command.partition(" with ")
    named = dict(word.removeprefix("--").split("=", 1) for word in options.split())
    given: dict[str, Any] = {}
    for word in assignments.split():
        name, value = word.split("=", 1)
        *path, last = name.split(".")
        inner = given
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = as_sacred_reads(value)
    return configuration(host, named["config"], named["env-config"], given)


def as_sacred_reads(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


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
