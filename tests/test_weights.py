"""Checkpoints read without torch: the tensors that torch reads, and whatever is unusual is left to torch."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import TESTS, child_environment

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.team import weights
from epymarl_fairtest.team.weights import read_weights

POLICIES = TESTS.parent / "policies"
TEAMS = sorted(path.parent.name for path in POLICIES.glob("*/agent.th"))
SOME = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1.5]), "c": torch.tensor(2.0)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that torch is asked to read."""
    paths: list[Path] = []
    by_torch = weights._by_torch

    def noting(path: Path) -> Any:
        paths.append(path)
        return by_torch(path)

    monkeypatch.setattr(weights, "_by_torch", noting)
    return paths


def the_same(path: Path) -> None:
    """What is read, and what torch reads."""
    ours, theirs = read_weights(path), torch.load(path, weights_only=True)
    assert list(ours) == list(theirs)
    for name, tensor in theirs.items():
        assert ours[name].dtype == np.float32
        assert ours[name].shape == tuple(tensor.shape)
        assert ours[name].tobytes() == tensor.detach().contiguous().numpy().tobytes()


@pytest.mark.parametrize("team", TEAMS)
def test_a_shipped_team_is_read_without_torch(team: str, asked: list[Path]) -> None:
    the_same(POLICIES / team / "agent.th")
    assert not asked


class Module(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.rnn = torch.nn.Linear(3, 70), torch.nn.GRUCell(70, 70)


PLAIN: dict[str, Callable[[], dict[str, Any]]] = {
    "a dictionary": lambda: SOME,
    "an ordered one": lambda: OrderedDict(SOME),
    "a state dict": lambda: Module().state_dict(),
    "parameters without gradients": lambda: {name: value.detach() for name, value in Module().named_parameters()},
    "tensors of one storage": lambda: {"all": SOME["a"], "row": SOME["a"][1], "end": SOME["a"].ravel()[4:]},
    "one tensor twice": lambda: {"one": SOME["a"], "other": SOME["a"]},
    "more names than fit in a byte": lambda: {f"layer {i}": torch.full((2,), float(i)) for i in range(400)},
}
UNUSUAL: dict[str, Callable[[], dict[str, Any]]] = {
    "columns": lambda: {"turned": SOME["a"].T},
    "one number many times": lambda: {"wide": torch.ones(1).expand(5)},
    "no number": lambda: {"empty": torch.zeros(0, 3)},
    "parameters": lambda: {"p": torch.nn.Parameter(torch.ones(2))},
}


@pytest.mark.parametrize("kind", PLAIN)
def test_named_tensors_are_read_without_torch(kind: str, tmp_path: Path, asked: list[Path]) -> None:
    torch.save(PLAIN[kind](), tmp_path / "agent.th")
    the_same(tmp_path / "agent.th")
    assert not asked


@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_tensors_are_read_as_torch_reads_them(kind: str, tmp_path: Path) -> None:
    torch.save(UNUSUAL[kind](), tmp_path / "agent.th")
    if kind == "one number many times":
        with pytest.raises(FairTestError, match="other kinds"):
            read_weights(tmp_path / "agent.th")
    else:
        the_same(tmp_path / "agent.th")


def test_files_of_older_versions_are_left_to_torch(tmp_path: Path, asked: list[Path]) -> None:
    torch.save(SOME, tmp_path / "agent.th", _use_new_zipfile_serialization=False)
    the_same(tmp_path / "agent.th")
    assert asked


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64])
def test_other_numbers_are_refused(kind: torch.dtype, tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2).to(kind)}, tmp_path / "agent.th")
    with pytest.raises(FairTestError, match=str(kind).removeprefix("torch.")):
        read_weights(tmp_path / "agent.th")


def rewritten(path: Path, change: Callable[[str, bytes], bytes], how: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path) as archive:
        parts = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in parts.items():
            archive.writestr(name, change(name.partition("/")[2], content))


@pytest.mark.parametrize("change", ["order of bytes", "fewer numbers", "compressed", "another tensor", "no pickle"])
def test_what_a_file_says_otherwise_is_torchs_to_judge(change: str, tmp_path: Path, asked: list[Path]) -> None:
    torch.save(SOME, tmp_path / "agent.th")
    changes: dict[str, Callable[[str, bytes], bytes]] = {
        "order of bytes": lambda name, content: b"big" if name == "byteorder" else content,
        "fewer numbers": lambda name, content: content[:-4] if name == "data/0" else content,
        "compressed": lambda name, content: content,
        "another tensor": lambda name, content: content.replace(b"_rebuild_tensor_v2", b"_rebuild_tensor_v9"),
        "no pickle": lambda name, content: content[:-1] if name == "data.pkl" else content,
    }
    rewritten(tmp_path / "agent.th", changes[change], zipfile.ZIP_DEFLATED if change == "compressed" else 0)
    with suppress(FairTestError):
        read_weights(tmp_path / "agent.th")
    assert asked


def test_no_name_but_three_is_known() -> None:
    for instructions in (b"cos\nsystem\n.", b"cbuiltins\neval\n(X\x01\x00\x00\x001tR.", b"ccollections\nCounter\n)R."):
        with pytest.raises(ValueError, match="GLOBAL"):
            weights.followed(instructions, lambda key: b"")


def test_what_is_read_can_be_changed_without_changing_others(tmp_path: Path) -> None:
    torch.save({"all": SOME["a"], "row": SOME["a"][1]}, tmp_path / "agent.th")
    read = read_weights(tmp_path / "agent.th")
    read["all"][:] = -1
    assert (read["row"] == [3, 4, 5]).all()


SEARCH = """
import sys
from epymarl_fairtest.commands import main
code = main(sys.argv[1:])
assert code == 0, code
from pathlib import Path
from epymarl_fairtest.team.saved import saved_team
needed = saved_team(Path(sys.argv[3]), "nearest_landmark").policy.needs_torch
assert needed or "torch" not in sys.modules
"""


def test_a_run_of_a_team_without_a_memory_does_not_load_torch(tmp_path: Path) -> None:
    """Unless torch has other bits on this machine. The first run asks it, where nobody has."""
    small = ["--method", "random", "--budget", "60", "--set", "explain=2"]
    for name in ("first", "second"):
        command = [sys.executable, "-W", "ignore", "-c", SEARCH, "run", "--policy", str(POLICIES / "mpe-qmix"), *small]
        done = subprocess.run(
            [*command, "--out", str(tmp_path / name)], capture_output=True, text=True, env=child_environment(tmp_path)
        )
        assert done.returncode == 0 or name == "first", done.stderr
