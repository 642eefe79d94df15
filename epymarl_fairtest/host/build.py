"""A host's runner, controller, buffer and learner in this process, as its own main would make them.

Benchmarks and tests compare with the real thing through here.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from epymarl_fairtest.core.checkout import known_checkout
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.host import mpe2_bridge, smaclite_guard
from epymarl_fairtest.host.hosts import Epymarl, Host, PymarlZoo


class QuietLogger:
    """The host's logger without its files."""

    def __init__(self) -> None:
        self.stats: dict[str, list[tuple[int, Any]]] = defaultdict(list)
        self.console_logger = logging.getLogger("fairtest.quiet")

    def log_stat(self, key: str, value: Any, t: int, to_sacred: bool = True) -> None:
        self.stats[key].append((t, value))


@dataclass
class Training:
    """Everything a host's training loop holds."""

    host: Host
    args: Any
    runner: Any
    mac: Any
    buffer: Any
    learner: Any

    def episode(self, number: int) -> None:
        """One turn of the host's loop: an episode, and a learner update when the buffer is full enough."""
        batch = self.runner.run(test_mode=False)
        self.buffer.insert_episode_batch(batch[0] if isinstance(batch, tuple) else batch)
        if self.buffer.can_sample(self.args.batch_size):
            sample = self.buffer.sample(self.args.batch_size)
            self.learner.train(sample[:, : sample.max_t_filled()], self.runner.t_env, number)


def load_host(name: str | None = None) -> Host:
    """EPyMARL where a checkout is known (or asked for as `epymarl`), otherwise PyMARLzoo+ (`pymarlzoo`)."""
    checkout = known_checkout()
    if name == "epymarl" or (name is None and checkout is not None):
        if checkout is None:
            raise FairTestError("No EPyMARL checkout is known: set EPYMARL_HOME or run fairtest install CHECKOUT.")
        smaclite_guard.activate()
        mpe2_bridge.activate()
        if str(checkout / "src") not in sys.path:
            sys.path.insert(0, str(checkout / "src"))
        return Epymarl()
    return PymarlZoo()


def configuration(host: Host, algorithm: str, env_config: str, changes: Mapping[str, Any]) -> Any:
    """The host's configuration files and ours, merged in the host's order."""
    root = Path(importlib.import_module(f"{host.prefix}runners").__file__ or "").parent.parent / "config"
    config: dict[str, Any] = _yaml(root / "default.yaml")
    _merge(config, _yaml(root / "envs" / "gymma.yaml"))
    if env_config != "gymma":
        _merge(config, _yaml(shipped("config") / "envs" / f"{env_config}.yaml"))
    _merge(config, _yaml(root / "algs" / f"{algorithm}.yaml"))
    _merge(config, {"seed": 1, "use_cuda": False, "unique_token": "in-process", "fairtest": False, **changes})
    config["env_args"] = {"seed": config["seed"], **config["env_args"]}
    if isinstance(host, PymarlZoo):
        config["env_args"].pop("pretrained_wrapper", None)
        config["results_path"] = "."
    return SimpleNamespace(**config, device="cpu")


def build_training(host: Host, args: Any, runner_class: type | None = None) -> Training:
    """Runner, controller, buffer and learner for `args`, wired as the host wires them."""
    import torch

    def module(name: str) -> Any:
        return importlib.import_module(host.prefix + name)

    logger = QuietLogger()
    runner = (runner_class or host.runners[args.runner])(args=args, logger=logger)
    info = runner.get_env_info()
    args.n_agents, args.n_actions, args.state_shape = info["n_agents"], info["n_actions"], info["state_shape"]
    args.unit_dim = info["obs_shape"]
    scheme = {
        "state": {"vshape": info["state_shape"]},
        "obs": {"vshape": info["obs_shape"], "group": "agents"},
        "actions": {"vshape": (1,), "group": "agents", "dtype": torch.long},
        "avail_actions": {"vshape": (info["n_actions"],), "group": "agents", "dtype": torch.int},
        "reward": {"vshape": (1,) if getattr(args, "common_reward", True) else (args.n_agents,)},
        "terminated": {"vshape": (1,), "dtype": torch.uint8},
    }
    groups = {"agents": args.n_agents}
    one_hot = module("components.transforms").OneHot(out_dim=args.n_actions)
    preprocess = {"actions": ("actions_onehot", [one_hot])}
    replay = module("components.episode_buffer").ReplayBuffer
    more = (args,) if "args" in inspect.signature(replay).parameters else ()
    buffer = replay(
        scheme, groups, *more, args.buffer_size, info["episode_limit"] + 1, preprocess=preprocess, device="cpu"
    )
    mac = module("controllers").REGISTRY[args.mac](buffer.scheme, groups, args)
    extra = {"explorer": None} if "explorer" in inspect.signature(runner.setup).parameters else {}
    runner.setup(scheme=scheme, groups=groups, preprocess=preprocess, mac=mac, **extra)
    learner = module("learners").REGISTRY[args.learner](mac, buffer.scheme, logger, args)
    return Training(host, args, runner, mac, buffer, learner)


def _yaml(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(path.read_text())
    return values


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value
