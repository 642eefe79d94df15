"""Bad input of every kind ends in a clear error, and nothing that lies in a file is executed.

Few tries; `python -m benchmarks.fuzz` makes thousands.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import TESTS, policy_folder

from epymarl_fairtest.commands import main
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.store.failures import COPIED, load_failures
from epymarl_fairtest.store.read import read_arrays
from epymarl_fairtest.team.checkpoint import load_weights
from epymarl_fairtest.team.sample import load_sample

pytest.importorskip("hypothesis", reason="hypothesis is not installed")
from benchmarks import fuzz

pytestmark = pytest.mark.slow


@pytest.fixture
def fuzzing() -> Iterator[fuzz.Fuzz]:
    with fuzz.fuzzing(TESTS / "fixtures" / "format-3", TESTS / "golden" / "team") as found:
        yield found


@pytest.mark.parametrize("name", fuzz.PROPERTIES)
def test_bad_input_is_refused_with_a_clear_error(name: str, fuzzing: fuzz.Fuzz) -> None:
    tries = 75 if name == "commands" else 150  # those take longer
    counts = fuzz.try_out(fuzzing, name, tries, seed=None)
    assert sum(counts.values()) >= tries
    taken = sum(counts.get(word, 0) for word in ("taken", "exit code 0", "exit code 1"))
    assert min(taken, sum(counts.values()) - taken) >= tries // 60, "one kind of input only"


def test_an_unclear_error_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(folder: Path) -> Any:
        raise KeyError("algorithm")

    monkeypatch.setattr(fuzz, "load_record", careless)
    with fuzz.fuzzing(TESTS / "fixtures" / "format-3", TESTS / "golden" / "team") as found:
        with pytest.raises(KeyError, match="algorithm"):
            fuzz.try_out(found, "policy_yaml", 20, seed=None)


# --- hostile files ------------------------------------------------------------------------------------


class Payload:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return open, (self._path, "w")


def as_bare_pickle(path: Path, payload: Payload) -> None:
    path.write_bytes(pickle.dumps({"fc1.weight": payload}))


def as_torch_archive(path: Path, payload: Payload) -> None:
    torch.save({"fc1.weight": payload}, path)


def as_old_torch_file(path: Path, payload: Payload) -> None:
    torch.save({"fc1.weight": payload}, path, _use_new_zipfile_serialization=False)


CHECKPOINTS: list[Callable[[Path, Payload], None]] = [as_bare_pickle, as_torch_archive, as_old_torch_file]


def test_the_payload_does_what_it_should_not(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Payload(tmp_path / "made"))).close()
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize("write", CHECKPOINTS)
def test_a_hostile_checkpoint_executes_nothing(
    write: Callable[[Path, Payload], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    team = policy_folder(tmp_path / "team")
    write(team / "agent.th", Payload(tmp_path / "made"))
    with pytest.raises(FairTestError, match="nothing in it was executed"):
        load_weights(team / "agent.th")
    assert main(["run", "--policy", str(team), "--out", str(tmp_path / "run"), "--method", "random"]) == 2
    assert "nothing in it was executed" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
    assert not (tmp_path / "run").exists()


def test_hostile_yaml_executes_nothing(tmp_path: Path) -> None:
    team = policy_folder(tmp_path / "team")
    with (team / "policy.yaml").open("a") as file:
        file.write(f"env_args: !!python/object/apply:builtins.open ['{tmp_path / 'made'}', w]\n")
    assert main(["run", "--policy", str(team), "--out", str(tmp_path / "run"), "--method", "random"]) == 2
    assert not (tmp_path / "made").exists()


def columns() -> dict[str, Any]:
    with np.load(TESTS / "fixtures" / "format-3" / "failures.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("name", [*COPIED, "operator", "position"])
def test_hostile_arrays_execute_nothing(name: str, tmp_path: Path) -> None:
    hostile = np.array([Payload(tmp_path / "made")], dtype=object)
    np.savez(tmp_path / "failures.npz", **{**columns(), name: hostile})  # numpy pickles what it cannot write
    for read in (load_sample, read_arrays, *([] if name == "position" else [load_failures])):
        with pytest.raises(FairTestError):
            read(tmp_path / "failures.npz")  # type: ignore[operator]
    assert not (tmp_path / "made").exists()


def test_an_archive_whose_member_is_a_pickle_executes_nothing(tmp_path: Path) -> None:
    """numpy reads such a member as bytes; nothing unpickles them."""
    with zipfile.ZipFile(tmp_path / "failures.npz", "w") as archive:
        for name, column in columns().items():
            written = io.BytesIO()
            np.save(written, column)
            archive.writestr(
                f"{name}.npy", written.getvalue() if name != "id" else pickle.dumps(Payload(tmp_path / "made"))
            )
    with pytest.raises(FairTestError):
        load_failures(tmp_path / "failures.npz")
    (tmp_path / "bare.npz").write_bytes(pickle.dumps(Payload(tmp_path / "made")))
    with pytest.raises(FairTestError):
        load_failures(tmp_path / "bare.npz")
    assert not (tmp_path / "made").exists()
