"""Damaged and hostile folders: refused in a sentence, nothing outside touched, nothing believed that was not written.

Few tries; `python -m benchmarks.hostile` makes hundreds.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import TESTS, child_environment, policy_folder, training_sample

from benchmarks import hostile
from epymarl_fairtest.commands import main
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.files import remove_left_over, write_atomically
from epymarl_fairtest.settings import fields_of
from epymarl_fairtest.store.checksum import sealed, unsealed
from epymarl_fairtest.store.finished import read_run, read_summary
from epymarl_fairtest.store.run import RunFolder
from epymarl_fairtest.strategies import STRATEGIES, configure
from epymarl_fairtest.team.checkpoint import load_record, load_weights, reading_of, save_policy
from epymarl_fairtest.team.sample import load_sample
from epymarl_fairtest.team.saved import saved_team

SMALL = ["--method", "random", "--set", "report=false", "--set", "workers=1", "--set", "theta=0.9"]


@pytest.mark.slow
def test_no_folder_crashes_fools_or_makes_touch_anything() -> None:
    tries = 40
    found = hostile.measure(tries, seed=tries, only=[kind for kind in hostile.KINDS if kind != "studies"])
    assert sum(counts["folders"] for counts in found.values()) >= 0.8 * tries
    assert {name: counts[name] for counts in found.values() for name in hostile.WRONG if counts.get(name)} == {}


@pytest.mark.slow
def test_no_study_folder_crashes_fools_or_makes_touch_anything() -> None:
    found = hostile.measure(25, seed=1, only=["studies"])["studies"]
    assert {name: found[name] for name in hostile.WRONG if found.get(name)} == {}


# --- links --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return policy_folder(tmp_path_factory.mktemp("policies") / "team", time_limit=6)


@pytest.fixture(scope="module")
def stopped(team: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted."""
    path = tmp_path_factory.mktemp("runs") / "run"
    with hostile.stopped_after(1):
        main(["run", "--policy", str(team), "--out", str(path), "--budget", "40", "--set", "batch=10", *SMALL])
    return path


@pytest.fixture
def interrupted(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))


@pytest.mark.parametrize("name", [".lock", "batches", "parts", "damaged", "journal.jsonl", "summary.json", "report"])
def test_a_link_in_a_run_folder_is_refused_and_what_it_leads_to_is_left_alone(
    name: str, interrupted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    for file in ("00000.npz", "mine", ".x.0a1b2c3d.tmp"):
        (precious / file).write_text("mine")
    path = interrupted / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(precious / "mine" if "." in name else precious)
    before = hostile.fingerprint(tmp_path)
    assert main(["run", "--resume", str(interrupted)]) == 2
    assert "never writes through a link" in capsys.readouterr().err
    assert hostile.fingerprint(tmp_path) == before


def test_an_empty_manifest_and_summary_delete_nothing(interrupted: Path, tmp_path: Path) -> None:
    (interrupted / "manifest.json").write_text("{}")
    (interrupted / "summary.json").write_text("{}")
    before = hostile.fingerprint(tmp_path)
    assert main(["run", "--resume", str(interrupted)]) == 2
    assert hostile.fingerprint(tmp_path) == before


def test_a_summary_without_its_checksums_clears_nothing_away(interrupted: Path) -> None:
    (interrupted / "summary.json").write_text("{}")
    before = sorted(path.name for path in (interrupted / "batches").iterdir())
    with pytest.raises(FairTestError, match="is finished"):
        RunFolder.resume(interrupted)
    assert sorted(path.name for path in (interrupted / "batches").iterdir()) == before


def test_a_lock_that_is_another_files_second_name_is_refused(interrupted: Path, tmp_path: Path) -> None:
    (tmp_path / "bashrc").write_text("mine")
    (interrupted / ".lock").unlink()
    os.link(tmp_path / "bashrc", interrupted / ".lock")
    with pytest.raises(FairTestError, match="is no lock of FairTest's"):
        RunFolder.resume(interrupted)
    assert (tmp_path / "bashrc").read_text() == "mine"


def test_files_of_other_names_are_never_deleted(interrupted: Path) -> None:
    for name in ("batches/mine.npz", ".mine.tmp", "parts/notes"):
        (interrupted / name).write_text("mine")
    assert main(["run", "--resume", str(interrupted)]) == 0
    assert all((interrupted / name).read_text() == "mine" for name in ("batches/mine.npz", ".mine.tmp", "parts/notes"))


# --- killed processes ---------------------------------------------------------------------------------


def test_a_run_killed_before_its_manifest_does_not_block_its_name(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run"):  # and no more
        pass
    (tmp_path / "run" / ".manifest.json.0a1b2c3d.tmp").write_text("half")
    with RunFolder(tmp_path / "run") as folder:
        assert sorted(os.listdir(folder.path)) == [".lock", "batches", "parts"]
        with pytest.raises(FairTestError, match="is being written by process"):
            RunFolder(tmp_path / "run")
        folder.write_manifest({"a": 1})
    with pytest.raises(FairTestError, match="already exists"):
        RunFolder(tmp_path / "run")


def test_what_a_killed_process_was_drawing_is_removed_and_what_is_being_written_is_not(tmp_path: Path) -> None:
    (tmp_path / ".index.html.0a1b2c3d.tmp").write_text("half a page")

    def fill(file: Any) -> None:
        remove_left_over(tmp_path)
        assert len(list(tmp_path.iterdir())) == 1, "what is being written is still there"
        file.write(b"whole")

    write_atomically(tmp_path / "index.html", fill)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"index.html": "whole"}


# --- resume, with another team ------------------------------------------------------------------------


def described(folder: Path, **changes: Any) -> None:
    record = load_record(folder)
    save_policy(folder, type(record)(**{**vars(record), **changes}), load_weights(folder / "agent.th"))


def other_sample(folder: Path) -> None:
    kept = training_sample()
    arrays = {"position": kept.position, "length": kept.length, "q": kept.q, "rewards": kept.rewards}
    np.savez(folder / "training_pool.npz", **arrays)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda team: described(team, env_args={"local_ratio": 0.25}),
            "env_args: {} there, {'local_ratio': 0.25} here",
        ),
        (lambda team: described(team, time_limit=7), "time_limit: 6 there, 7 here"),
        (lambda team: described(team, allocation="nearest_landmark"), "policy_allocation: 'env' there"),
        (other_sample, "other training sample"),
    ],
    ids=["env_args", "time limit", "allocation", "training sample"],
)
def test_a_run_is_resumed_with_the_team_it_began_with_or_not_at_all(
    change: Callable[[Path], None], told: str, team: Path, interrupted: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    other = Path(shutil.copytree(team, tmp_path / "other"))
    change(other)
    assert main(["run", "--resume", str(interrupted), "--policy", str(other)]) == 2
    assert told in capsys.readouterr().err
    assert main(["run", "--resume", str(interrupted), "--policy", str(team)]) == 0


def test_the_command_in_the_manifest_can_be_typed_again(
    team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shlex

    words = ["run", "--policy", str(team), "--out", str(tmp_path / "a run; $(no)"), "--budget", "4", *SMALL]
    monkeypatch.setattr(sys, "argv", ["fairtest", *words])
    assert main(words) == 0
    manifest = json.loads((tmp_path / "a run; $(no)" / "manifest.json").read_text())
    assert shlex.split(manifest["command"]) == ["fairtest", *words]


# --- policies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{"algorithm": "something"}, {"algorithm": "mappo", "agent_output_type": "value"}])
def test_a_team_of_an_unknown_kind_is_refused_by_name(given: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(
        FairTestError, match=rf"algorithm '{given['algorithm']}'.* not known to give Q-values or logits"
    ):
        load_record(policy_folder(tmp_path / "team", **given))


@pytest.mark.parametrize(
    ("given", "reading"),
    [({"algorithm": "qplex", "agent_output_type": "q"}, "q"), ({"algorithm": "coma"}, "logits"),
     ({"algorithm": "ippo_ns"}, "logits"), ({"algorithm": "qmix", "agent_output_type": "pi_logits"}, "logits")],
)  # fmt: skip
def test_a_team_says_how_its_scores_are_read(given: dict[str, str], reading: str, tmp_path: Path) -> None:
    assert reading_of(load_record(policy_folder(tmp_path / "team", **given))) == reading


@pytest.mark.parametrize("line", hostile.LINES)
def test_an_odd_line_in_policy_yaml_is_taken_or_refused(line: str, tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team")
    name = line.split(":")[0]
    kept = [text for text in (folder / "policy.yaml").read_text().splitlines() if not text.startswith(f"{name}:")]
    (folder / "policy.yaml").write_text("\n".join([*kept, line]))
    with contextlib.suppress(FairTestError):
        json.dumps(saved_team(folder, load_record(folder).allocation).origin, allow_nan=False)


@pytest.mark.parametrize(
    "change",
    [torch.Tensor.half, torch.Tensor.double, torch.Tensor.to_sparse, torch.Tensor.int, lambda t: t.to("meta"),
     lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8), lambda t: torch.zeros(1).expand(10**6, 10**6)],
)  # fmt: skip
def test_tensors_of_other_kinds_are_refused(change: Callable[[Any], Any], tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team")
    weights = load_weights(folder / "agent.th")
    torch.save(weights | {"fc1.weight": change(weights["fc1.weight"])}, folder / "agent.th")
    with pytest.raises(FairTestError, match=r"tensors of other kinds .*fc1\.weight"):
        load_weights(folder / "agent.th")
    torch.save({7: weights["fc1.weight"]}, folder / "agent.th")
    with pytest.raises(FairTestError, match="no named tensors"):
        load_weights(folder / "agent.th")


def test_a_sample_of_another_team_or_with_nan_is_refused_before_the_search(tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team", "foraging")
    other_sample(folder)
    with pytest.raises(
        FairTestError, match="sample of another team: 3 agents with 5 actions, and this team has 3 with 6"
    ):
        saved_team(folder, "env")
    with np.load(folder / "training_pool.npz") as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(folder / "training_pool.npz", **(arrays | {"rewards": arrays["rewards"] * np.nan}))
    with pytest.raises(FairTestError, match="holds NaN or infinite numbers"):
        load_sample(folder / "training_pool.npz")


EVIL = "open('EXECUTED', 'w')\n\n\ndef f(state, reward):\n    return reward\n"


IN_ONE_PROCESS = (
    "import sys; from epymarl_fairtest.commands import main; sys.exit(min(main(a.split()) for a in sys.argv[1:]))"
)


@pytest.mark.fresh
@pytest.mark.parametrize("path", ["", ":/nowhere", "TEAM"])
def test_a_policy_brings_no_code_along(path: str, tmp_path: Path) -> None:
    """Three teams that name code beside them, tested in one process that was started there."""
    changes = {"a": {"allocation": "evil:f"}, "b": {"key": "evil:id"}, "c": {"env_args": {"allocation": "evil:f"}}}
    folder = tmp_path / "team"
    for name, change in changes.items():
        policy_folder(folder / name, **change)
        for place in (folder, folder / name):
            (place / "evil.py").write_text(EVIL)
    beside = os.pathsep.join(str(folder / name) for name in changes)
    found = os.pathsep.join([str(TESTS.parent), path.replace("TEAM", beside)])
    commands = [" ".join(["run", "--policy", name, "--out", "run", "--budget", "4", *SMALL]) for name in changes]
    done = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, *commands],
        cwd=folder,
        env=child_environment(tmp_path) | {"PYTHONPATH": found},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 3, done.stderr
    assert not (folder / "EXECUTED").exists()
    assert not (folder / "run").exists()


@pytest.mark.parametrize("changes", [{"allocation": "os:system"}, {"key": "antigravity:Opens-a-browser-v0"}])
def test_a_policy_calls_nothing_of_pythons_own_library(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = policy_folder(tmp_path / "team", **changes)
    with pytest.raises(FairTestError, match="names a module of Python's own"):
        saved_team(folder, changes.get("allocation", "env"))
    assert "antigravity" not in sys.modules


def test_code_of_ones_own_is_taken_from_the_path_and_not_from_the_current_folder(
    team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_allocation.py").write_text("def f(state, reward):\n    return reward\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with pytest.raises(FairTestError, match="names code in the current folder"):
        saved_team(team, "my_own_allocation:f")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert saved_team(team, "my_own_allocation:f").allocation == "my_own_allocation:f"


# --- giant settings -----------------------------------------------------------------------------------


def giant() -> list[tuple[str, str]]:
    options = ((method, name) for method in STRATEGIES for name in fields_of(STRATEGIES[method].options))
    return [pair for pair in options if pair[1] in ("batch", "buckets", "tournament", "pool", "trees", "population")]


@pytest.mark.parametrize(("method", "name"), giant())
def test_what_would_fit_no_memory_is_refused(method: str, name: str) -> None:
    def chosen() -> Any:
        return STRATEGIES[method].chosen(configure({"method": method, "options": {name: 10**9}}))

    with pytest.raises(FairTestError, match=rf"{name}=1000000000 is not allowed.* from \d+ to "):
        chosen()


# --- summaries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [{"ledger": {"x": 3}}, {"phases": {"x": "long"}}, {"predictor": {"auc_full": "high"}}, {"seed": []},
     {"cpu_seconds": None}, {"index_quantiles": {"0": 1e308}}, {"task": "a\nb"}, {"index": "none"},
     {"executed_steps": 10**30}, {"wall_seconds": float("nan")}, {"notes": 7}],
    ids=str,
)  # fmt: skip
def test_a_crafted_summary_is_refused_by_every_reader(change: dict[str, Any], tmp_path: Path) -> None:
    run = Path(shutil.copytree(TESTS / "fixtures" / "format-3", tmp_path / "run"))
    (run / "checksums.json").unlink()
    (run / "summary.json").write_text(json.dumps(json.loads((run / "summary.json").read_text()) | change))
    for read in (read_summary, read_run):
        with pytest.raises(FairTestError, match=r"summary\.json' is damaged: it (says|does not say) "):
            read(run)


@pytest.mark.parametrize("change", [{"versions": []}, {"env_args": 3}, {"theta": "high"}, {"settings": {"index": 1}}])
def test_a_crafted_manifest_is_refused_by_every_reader(change: dict[str, Any], tmp_path: Path) -> None:
    run = Path(shutil.copytree(TESTS / "fixtures" / "format-3", tmp_path / "run"))
    (run / "manifest.json").write_text(json.dumps(sealed(unsealed((run / "manifest.json").read_bytes()) | change)))
    with pytest.raises(FairTestError, match=r"manifest\.json' is damaged: it says "):
        read_run(run)
