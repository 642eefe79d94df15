"""Policy folders: `agent.th`, `policy.yaml` and, to train on, `learner.th`; read without running anything in them.

Every mismatch between weights, description and environment is reported in one message.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import write_atomically
from epymarl_fairtest.team.description import read_description
from epymarl_fairtest.team.policy import NetworkPolicy
from epymarl_fairtest.team.sample import TrainingEpisodes
from epymarl_fairtest.team.weights import NEXT_STEP, array_of, read_weights

if TYPE_CHECKING:  # it takes a second, and a saved team may do without
    from torch import Tensor

Weights = Mapping[str, Any]  # named tensors, or the same as arrays
FORMAT = 2
FORMATS = (1, 2)  # that can be read; format 1 knows nothing of the learner
LEARNER = "learner.th"  # what the host's learner holds besides the agents: named tensors, as in agent.th
WITHOUT_RECORD = (
    "For an agent.th that a host saved, write policy.yaml beside it (docs/saved-teams.md), or test it inside the host:"
    " fairtest launch -- src/main.py … with fairtest=True evaluate=True checkpoint_path=…"
)

NO_YES = (False, True)
OUTPUTS = {"q": "q", "pi_logits": "logits"}
"""What the hosts call what their agents give (agent_output_type), and how it is read (core/scores.py)."""
ALGORITHMS = {
    "q": ("iql", "vdn", "qmix", "qtran"),
    "pi_logits": ("mappo", "ippo", "maa2c", "ia2c", "coma", "maddpg", "pac", "pac_dcg", "pac_sarsa", "pac_sarsa_dcg"),
}
"""Whose agents give what, by the hosts' names, where nothing else says it; `_ns` variants have a network per agent."""
LARGEST = {"time_limit": 10_000, "n_agents": 1_000, "n_actions": 10_000, "obs_size": 1_000_000, "hidden_dim": 65_536}
"""Of the sizes in policy.yaml: beyond these an episode or a network fits no memory."""


@dataclass(frozen=True)
class PolicyRecord:
    """What policy.yaml says: enough to rebuild the team and its environment without a framework."""

    algorithm: str
    key: str  # gymnasium id of the environment
    time_limit: int
    n_agents: int
    n_actions: int
    obs_size: int
    hidden_dim: int
    use_rnn: bool
    obs_last_action: bool
    obs_agent_id: bool
    agent_output_type: str = ""  # one of OUTPUTS; an algorithm that is not one of ALGORITHMS needs it
    env_args: dict[str, Any] = field(default_factory=dict)  # what the environment is made with besides its key
    allocation: str = "env"
    host: str = ""
    training_steps: int = 0
    test_return: float | None = None
    command: str = ""
    learner: dict[str, Any] = field(default_factory=dict)  # the host's settings of learner, buffer and controller
    format: int = FORMAT


def record_of_training(
    args: Any, *, time_limit: int, n_agents: int, n_actions: int, obs_size: int, **more: Any
) -> PolicyRecord:
    """The record of a team that a host trains with `args`, its environment of the given sizes."""
    made_with = {
        name: value
        for name, value in args.env_args.items()
        if name not in ("key", "time_limit", "seed", "render") and not (name == "pretrained_wrapper" and not value)
    }
    return PolicyRecord(
        algorithm=args.name,
        key=args.env_args["key"],
        time_limit=time_limit,
        n_agents=n_agents,
        n_actions=n_actions,
        obs_size=obs_size,
        agent_output_type=str(getattr(args, "agent_output_type", "")),
        env_args=made_with,
        **network_of(args),
        **more,
    )


def network_of(args: Any) -> dict[str, Any]:
    """The agents' network as a host's arguments name it; PyMARL2's forks have other names for the same."""
    width = getattr(args, "hidden_dim", getattr(args, "rnn_hidden_dim", None))
    lacking = [name for name in ("obs_last_action", "obs_agent_id") if not hasattr(args, name)]
    if width is None or lacking:
        names = ", ".join([*(["hidden_dim (or rnn_hidden_dim)"] if width is None else []), *lacking])
        raise FairTestError(
            f"The host's configuration lacks {names}, without which the team could not be saved for `fairtest run`."
            " Add it to the algorithm's configuration file, as EPyMARL's has it."
        )
    return {
        "hidden_dim": int(width),
        "use_rnn": bool(getattr(args, "use_rnn", True)),  # PyMARL2 knows nothing else
        "obs_last_action": bool(args.obs_last_action),
        "obs_agent_id": bool(args.obs_agent_id),
    }


TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,), "bool": (bool,), "str": (str,), "dict[str, Any]": (dict,), "float | None": (float, int, type(None)),
}  # fmt: skip


def save_policy(folder: Path, record: PolicyRecord, weights: dict[str, Tensor]) -> None:
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "agent.th", lambda file: torch.save(weights, file))
    text = yaml.dump(asdict(record), Dumper=_WithoutAliases, sort_keys=False)
    write_atomically(folder / "policy.yaml", lambda file: file.write(text.encode()))


def save_learner(folder: Path, held: Mapping[str, Tensor]) -> None:
    """What the learner of this team holds, so that training can go on where it stopped."""
    import torch

    write_atomically(folder / LEARNER, lambda file: torch.save(dict(held), file))


class _WithoutAliases(yaml.SafeDumper):
    """Writes a value that is there twice twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def load_record(folder: Path) -> PolicyRecord:
    if folder.is_file():
        raise FairTestError(f"{str(folder)!r} is a file; give the folder that it is in, {str(folder.parent)!r}.")
    if not folder.is_dir():
        raise FairTestError(f"There is no policy folder {str(folder)!r}. {NEXT_STEP}")
    path = folder / "policy.yaml"
    if not path.is_file():
        raise FairTestError(f"{str(folder)!r} holds no policy.yaml. {NEXT_STEP} {WITHOUT_RECORD}")
    values = read_description(path)
    wrong = list(_wrong(values))
    if wrong:
        raise FairTestError(f"{str(path)!r} does not describe a policy: {'; '.join(wrong)}. {NEXT_STEP}")
    record = PolicyRecord(**values)
    reading_of(record, repr(str(path)))
    return record


def reading_of(record: PolicyRecord, where: str = "policy.yaml") -> str:
    """How the team's scores are read. A team of another kind is refused; `where` names what describes it."""
    plain = record.algorithm.removesuffix("_ns")
    said = record.agent_output_type or next((kind for kind, names in ALGORITHMS.items() if plain in names), "")
    if said in OUTPUTS:
        return OUTPUTS[said]
    known = ", ".join(name for names in ALGORITHMS.values() for name in names)
    given = f" (agent_output_type={said!r})" if said else ""
    raise FairTestError(
        f"{where} describes a team of algorithm {record.algorithm!r}{given}, whose agents are not known to give"
        f" Q-values or logits; FairTest tests teams of {known} and their _ns variants. Where another algorithm's"
        " agents do, add the line agent_output_type: q, or agent_output_type: pi_logits."
    )


def _wrong(values: Mapping[Any, Any]) -> Iterator[str]:
    """What keeps these values from being a PolicyRecord."""
    known = {f.name: f for f in fields(PolicyRecord)}
    optional = {f.name for f in fields(PolicyRecord) if f.default is not MISSING or f.default_factory is not MISSING}
    yield from (f"missing {name}" for name in known if name not in values and name not in optional)
    yield from (f"unknown {_shown(name)}" for name in values if name not in known)
    for name in (name for name in known if name in values):
        value, kind = values[name], str(known[name].type)
        if type(value) not in TYPES[kind]:
            yield f"{name}={_shown(value)} must be {kind}"
        elif name in LARGEST and not 1 <= value <= LARGEST[name]:
            yield f"{name}={_shown(value)} must be at least 1 and at most {LARGEST[name]:,}"
        elif name == "format" and value not in FORMATS:
            yield f"format={_shown(value)} is none of {', '.join(map(str, FORMATS))}"
        elif name in ("env_args", "learner") and not is_plain(value):
            yield f"{name}={_shown(value)} must hold plain values: text, finite numbers, true, false, null, lists"


def _shown(value: Any) -> str:
    """Short enough for a message."""
    if isinstance(value, int) and abs(value) >= 2**63:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_plain(value: Any) -> bool:
    """Can it be written to the manifest, and read back as it was?"""
    if isinstance(value, dict):
        return all(isinstance(name, str) and is_plain(part) for name, part in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, int):
        return abs(value) < 2**63
    return value is None or isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


def load_weights(path: Path) -> dict[str, Tensor]:
    """As who trains with them wants them."""
    import torch

    return {name: torch.from_numpy(value) for name, value in read_weights(path).items()}


def load_learner(folder: Path) -> dict[str, Tensor]:
    """What the learner of this team held when it was saved; nothing where that was not kept."""
    return load_weights(folder / LEARNER) if (folder / LEARNER).is_file() else {}


def load_policy(folder: Path, record: PolicyRecord, *, obs_size: int, n_agents: int, n_actions: int) -> NetworkPolicy:
    """The team of `folder` for an environment of the given sizes."""
    weights = read_weights(folder / "agent.th")
    environment: dict[str, Any] = {"obs_size": obs_size, "n_agents": n_agents, "n_actions": n_actions}
    wrong = [
        f"{name} is {value} in the environment {record.key!r} and {getattr(record, name)} in policy.yaml"
        for name, value in environment.items()
        if value != getattr(record, name)
    ]
    real = replace(record, **environment) if mismatches(weights, record) else record
    shown = shown_by(weights, real)
    wrong += [
        f"{name} is {_as_yaml(getattr(record, name))} in policy.yaml and {_as_yaml(value)} in agent.th"
        for name, value in shown.items()
        if value != getattr(record, name)
    ]
    wrong += mismatches(weights, replace(real, **shown))
    if wrong:
        raise does_not_fit(folder, wrong)
    return rebuild(weights, record)


def rebuild(weights: Weights, record: PolicyRecord) -> NetworkPolicy:
    """The team with these weights, which fit the record."""
    return NetworkPolicy(
        weights,
        n_agents=record.n_agents,
        n_actions=record.n_actions,
        obs_size=record.obs_size,
        recurrent=record.use_rnn,
        obs_last_action=record.obs_last_action,
        obs_agent_id=record.obs_agent_id,
        reading=reading_of(record),
    )


def shown_by(weights: Weights, record: PolicyRecord) -> dict[str, Any]:
    """The fields of policy.yaml as the shapes of `weights` show them; those that they do not show are left out."""
    own = "agents.0." if "agents.0.fc1.weight" in weights else ""
    shapes = {name.removeprefix(own): value.shape for name, value in weights.items() if name.startswith(own)}
    first, last = shapes.get("fc1.weight", ()), shapes.get("fc2.weight", ())
    if len(first) != 2 or len(last) != 2:
        return {}
    shown: dict[str, Any] = {"hidden_dim": first[0], "n_actions": last[0]}
    if own:
        shown["n_agents"] = len({name.split(".")[1] for name in weights if name.startswith("agents.")})
    if "rnn.weight_ih" in shapes or "rnn.weight" in shapes:
        shown["use_rnn"] = "rnn.weight_ih" in shapes
    sized = replace(record, **shown)
    flags: list[dict[str, Any]] = [{"obs_last_action": a, "obs_agent_id": b} for a in NO_YES for b in NO_YES]
    fitting = [flag for flag in flags if inputs_of(replace(sized, **flag)) == first[1]]
    return shown | (fitting[0] if len(fitting) == 1 and inputs_of(sized) != first[1] else {})


def _as_yaml(value: Any) -> str:
    return str(value).lower()


def mismatches(weights: Weights, record: PolicyRecord) -> list[str]:
    """What keeps `weights` from being the network that `record` describes."""
    wrong = []
    expected = expected_shapes(record, separate=any(name.startswith("agents.") for name in weights))
    for name in sorted(expected.keys() | weights.keys()):
        want, got = expected.get(name), tuple(weights[name].shape) if name in weights else None
        if want != got:
            wrong.append(f"{name} has shape {got} in agent.th, expected {want}")
        elif not np.isfinite(array_of(weights[name])).all():
            wrong.append(f"{name} holds NaN or infinite numbers")
    return wrong


def does_not_fit(folder: Path, wrong: list[str]) -> FairTestError:
    return FairTestError(f"The checkpoint in {str(folder)!r} does not fit: " + "; ".join(wrong) + ".")


def expected_shapes(record: PolicyRecord, *, separate: bool) -> dict[str, tuple[int, ...]]:
    h, a = record.hidden_dim, record.n_actions
    shapes: dict[str, tuple[int, ...]] = {"fc1.weight": (h, inputs_of(record)), "fc1.bias": (h,)}
    if record.use_rnn:
        shapes |= {"rnn.weight_ih": (3 * h, h), "rnn.weight_hh": (3 * h, h)}
        shapes |= {"rnn.bias_ih": (3 * h,), "rnn.bias_hh": (3 * h,)}
    else:
        shapes |= {"rnn.weight": (h, h), "rnn.bias": (h,)}
    shapes |= {"fc2.weight": (a, h), "fc2.bias": (a,)}
    if not separate:
        return shapes
    return {f"agents.{i}.{name}": shape for i in range(record.n_agents) for name, shape in shapes.items()}


def inputs_of(record: PolicyRecord) -> int:
    return record.obs_size + record.n_actions * record.obs_last_action + record.n_agents * record.obs_agent_id


def digest(weights: Weights) -> str:
    """A name for exactly these weights, whatever file they came from."""
    sha = hashlib.sha256()
    for name in sorted(weights):
        sha.update(name.encode())
        sha.update(str(tuple(weights[name].shape)).encode())
        sha.update(array_of(weights[name]).tobytes())
    return sha.hexdigest()


def origin_of(record: PolicyRecord, policy_digest: str, sample: TrainingEpisodes) -> dict[str, Any]:
    """What makes a team the team it is, as the manifest of its run has it; `differences` compares it."""
    return {
        "host": record.host,
        "algorithm": record.algorithm,
        "key": record.key,
        "env_args": record.env_args,
        "time_limit": record.time_limit,
        "policy_allocation": record.allocation,
        "training_pool": len(sample),
        "training_pool_digest": sample.digest(),
        "policy_digest": policy_digest,
    }


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """How a team differs from the one in a manifest; what an earlier manifest does not have is not compared."""
    shown = {
        "policy_digest": "weights",
        "training_pool": "training episodes",
        "training_pool_digest": "training sample",
    }
    compared = [name for name in here if name in there and name not in ("host", "policy")]
    unlike = [name for name in compared if json.loads(json.dumps(here[name])) != there[name]]
    return [
        f"other {shown[name]}"
        if name.endswith("digest")
        else f"{shown.get(name, name)}: {there[name]!r} there, {here[name]!r} here"
        for name in unlike
    ]
