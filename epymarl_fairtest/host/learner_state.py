"""What a host's learner holds besides the agents, as named tensors: networks, targets, optimisers, running statistics.

Found by what it is, not by its name: hosts and their learners call it differently.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.host.hosts import Host
from epymarl_fairtest.team.checkpoint import is_plain

STATISTICS = ("mean", "var", "count")
ELSEWHERE = ("env", "fairtest", "wandb", "use_wandb", "use_tensorboard", "use_cuda", "device", "seed", "label", "name")
"""How settings of a host begin that say nothing of how a team learns."""
BESIDES = (
    "_path", "_token", "results", "checkpoint", "load_", "save_", "test_", "evaluat", "render", "log_interval", "t_max",
    "repeat_id", "hypergroup",
)  # fmt: skip
"""What is in the names of others: files, tests, logs, and how long it all takes."""


def settings_of_learner(args: Any) -> dict[str, Any]:
    """How this team learns, as plain values: the host's arguments but for machine, environment, files and logs."""
    return {
        name: value
        for name, value in sorted(vars(args).items())
        if is_plain(value) and not name.startswith(ELSEWHERE) and not any(part in name for part in BESIDES)
    }


def _modules(learner: Any) -> Iterator[tuple[str, torch.nn.Module]]:
    """Networks that are the learner's own, copies of the agents among them; the agents themselves are in agent.th."""
    for name, value in sorted(vars(learner).items()):
        network = getattr(value, "agent", value)  # of a controller, the agents
        if isinstance(network, torch.nn.Module) and value is not learner.mac:
            yield name, network


def _optimisers(learner: Any) -> Iterator[tuple[str, torch.optim.Optimizer]]:
    yield from (
        (name, value) for name, value in sorted(vars(learner).items()) if isinstance(value, torch.optim.Optimizer)
    )


def _statistics(learner: Any) -> Iterator[tuple[str, Any]]:
    for name, value in sorted(vars(learner).items()):
        if all(hasattr(value, part) for part in STATISTICS) and isinstance(getattr(value, "mean", None), Tensor):
            yield name, value


def state_of(learner: Any) -> dict[str, Tensor]:
    """Everything that goes on learning needs: `mixer.…`, `target_mac.…`, `optimiser.0.exp_avg`, `rew_ms.mean`, …"""
    held: dict[str, Tensor] = {}
    for name, network in _modules(learner):
        held |= {f"{name}.{key}": value for key, value in _named(network.state_dict()).items()}
    for name, optimiser in _optimisers(learner):
        for number, parts in optimiser.state_dict()["state"].items():
            held |= {f"{name}.{number}.{key}": torch.as_tensor(part) for key, part in parts.items()}
    for name, statistic in _statistics(learner):
        held |= {f"{name}.{part}": torch.as_tensor(getattr(statistic, part)) for part in STATISTICS}
    return {name: value.detach().cpu().float().clone() for name, value in held.items()}


def _named(state: Any) -> Mapping[str, Tensor]:
    """EPyMARL's critics without shared parameters give a list, one state per agent."""
    if isinstance(state, Mapping):
        return state
    return {f"{agent}.{key}": value for agent, one in enumerate(state) for key, value in one.items()}


def restore(learner: Any, held: Mapping[str, Tensor], where: str) -> None:
    """Give a fresh learner what `state_of` took from another one."""
    try:
        for name, network in _modules(learner):
            if any(True for _ in network.state_dict()):
                network.load_state_dict(_below(name, held))
        for name, statistic in _statistics(learner):
            parts = _below(name, held)
            statistic.mean, statistic.var = (_like(getattr(statistic, part), parts[part]) for part in ("mean", "var"))
            statistic.count = float(parts["count"])
        for name, optimiser in _optimisers(learner):
            _restore_optimiser(optimiser, _below(name, held))
    except (LookupError, RuntimeError, ValueError) as error:
        raise FairTestError(
            f"{where!r} does not hold what the learner of this team needs: {' '.join(str(error).split())[:300]}. It"
            " belongs to another algorithm, host or network; delete it, and what is missing is learned again."
        ) from error
    if not all(bool(torch.isfinite(value).all()) for value in held.values()):
        raise FairTestError(f"{where!r} holds NaN or infinite numbers; delete it, and it is learned again.")


def _restore_optimiser(optimiser: torch.optim.Optimizer, held: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in held.items():
        number, _, part = key.partition(".")
        state.setdefault(int(number), {})[part] = value
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    for place, parts in state.items():
        for part, value in parts.items():
            if value.numel() != 1 and value.shape != parameters[place].shape:
                raise ValueError(f"{part} of parameter {place} has shape {tuple(value.shape)}")
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _below(name: str, held: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): value for key, value in held.items() if key.startswith(f"{name}.")}


def _like(old: Tensor, new: Tensor) -> Tensor:
    if old.shape != new.shape:
        raise ValueError(f"a statistic of shape {tuple(new.shape)}, not {tuple(old.shape)}")
    return new.to(old)


def finite(parameters: Any) -> bool:
    return all(math.isfinite(float(value.detach().sum())) for value in parameters)


class Pace:
    """The learning rates of a learner's optimisers, as a share of what they are now."""

    def __init__(self, learner: Any) -> None:
        self._usual = [(group, group["lr"]) for _, one in _optimisers(learner) for group in one.param_groups]

    def set(self, share: float) -> None:
        for group, rate in self._usual:
            group["lr"] = rate * share


def remembered_learner(host: Host, args: Any) -> Callable[[], Any]:
    """The learner that the host will make for this training: hosts make it last and show it to nobody."""
    made: list[Any] = []
    try:
        registry = importlib.import_module(f"{host.prefix}learners").REGISTRY
        entry = registry[args.learner]
    except (ImportError, AttributeError, LookupError, TypeError):  # a fork that makes it in a way of its own
        return lambda: None

    def make(*given: Any, **named: Any) -> Any:
        registry[args.learner] = entry
        made.append(entry(*given, **named))
        return made[0]

    registry[args.learner] = make
    return lambda: made[0] if made else None
