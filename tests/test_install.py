"""`fairtest install`: every edit is made, found again, and taken back to the byte."""

import argparse
import hashlib
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from epymarl_fairtest.commands import install as command
from epymarl_fairtest.core.checkout import MARKS, forget, is_checkout, known_checkout, remember
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.core.shipped import PACKAGE, shipped
from epymarl_fairtest.host import install as installer
from epymarl_fairtest.host import smaclite_guard
from epymarl_fairtest.host.install import Report, install, state, uninstall

MINI = {
    "src/main.py": "import sys\n\nfrom run import run\n\nprint('hello')\n",
    "src/run.py": "def run():\n    pass  # sacred calls it\n",
    "src/runners/__init__.py": "REGISTRY = {}\n",
    "src/envs/__init__.py": "import os\nfrom .smaclite_wrapper import SMACliteWrapper\n\nREGISTRY = {}\n",
    "src/envs/gymma.py": "import gymnasium as gym\n\n\nclass GymmaWrapper:\n    pass\n",
    "src/envs/pz_wrapper.py": "import gymnasium as gym\n\nimport pettingzoo\n\n\nclass Wrapper:\n    pass\n",
    "src/config/envs/gymma.yaml": "env: gymma\n",
}
HOOK = "import epymarl_fairtest.hook  # FairTest: "
PATCHED = ("src/main.py", "src/envs/__init__.py", "src/envs/pz_wrapper.py")


@pytest.fixture(autouse=True)
def private_register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may see or change the user's own registered checkout."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("EPYMARL_HOME", raising=False)


@pytest.fixture
def mini(tmp_path: Path) -> Path:
    """A checkout of nothing but anchors."""
    root = tmp_path / "mini checkout"
    for name, text in MINI.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.encode())
    return root


@pytest.fixture
def envs(tmp_path: Path) -> Path:
    folder = tmp_path / "shipped envs"
    folder.mkdir()
    (folder / "fairtest_tag.yaml").write_bytes(b"env: gymma\nenv_args:\n  time_limit: 50\n")
    (folder / "fairtest_spread.yaml").write_bytes(b"env: gymma\n")
    return folder


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's own EPyMARL as git has it, without any FairTest in it."""
    known = known_checkout()  # module-scoped: runs before the register is redirected
    if known is None:
        pytest.skip("no EPyMARL checkout known: set EPYMARL_HOME or run fairtest install")
    listed = subprocess.run(["git", "-C", str(known), "ls-files", "-z"], capture_output=True, text=True)
    names = [name for name in listed.stdout.split("\0") if name and (known / name).is_file()]
    root = tmp_path_factory.mktemp("stock") / "epymarl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("xdg")))
        for name in names or [str(f.relative_to(known)) for f in (known / "src").rglob("*") if f.is_file()]:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(known / name, root / name)
        uninstall(root)
    return root


@pytest.fixture
def real(stock: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stock, tmp_path / "epymarl"))


def tree_hash(root: Path) -> dict[str, tuple[str, int]]:
    return {
        str(file.relative_to(root)): (
            hashlib.sha256(file.read_bytes()).hexdigest(),
            stat.S_IMODE(file.stat().st_mode),
        )
        for file in sorted(root.rglob("*"))
        if file.is_file() and "__pycache__" not in file.parts
    }


def statuses(report: Report) -> dict[str, str]:
    return {line.name: line.status for line in report.lines}


# --- patches ----------------------------------------------------------------------------------------


def test_the_shipped_patches_are_well_formed() -> None:
    files = sorted(shipped("src_patches").glob("*.yaml"))
    assert files
    for file in files:
        raw = yaml.safe_load(file.read_text())
        assert set(raw) == {"file", "why", "required", "edits"}, file.name
        for edit in raw["edits"]:
            assert set(edit) == {"old", "new"}
            assert "\n" not in edit["old"], "an anchor is one line: EPyMARL's code is not ours to ship"
            assert edit["old"] in edit["new"]
            assert "epymarl_fairtest" in edit["new"]


def test_every_anchor_occurs_exactly_once_before_and_every_new_text_exactly_once_after(real: Path) -> None:
    patches = [yaml.safe_load(file.read_text()) for file in shipped("src_patches").glob("*.yaml")]
    before = {patch["file"]: (real / patch["file"]).read_text() for patch in patches}
    report = install(real)
    assert report.state == "installed"
    for patch in patches:
        for edit in patch["edits"]:
            assert before[patch["file"]].count(edit["old"]) == 1
            assert (real / patch["file"]).read_text().count(edit["new"]) == 1


# --- there and back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["mini", "real"])
def test_uninstall_restores_every_byte_and_mode(which: str, envs: Path, request: pytest.FixtureRequest) -> None:
    root = request.getfixturevalue(which)
    (root / "src/main.py").chmod(0o755)
    before = tree_hash(root)
    report = install(root, envs)
    assert report.state == "installed"
    assert report.changed
    assert set(statuses(report).values()) == {"applied"}
    after = tree_hash(root)
    assert {name for name in after if after[name] != before.get(name)} == {
        *PATCHED,
        "src/config/envs/fairtest_tag.yaml",
        "src/config/envs/fairtest_spread.yaml",
        installer.RECORD,
    }
    assert after["src/main.py"][1] == 0o755
    assert uninstall(root, envs).state == "not installed"
    assert tree_hash(root) == before


def test_install_with_the_really_shipped_settings(mini: Path) -> None:
    before = tree_hash(mini)
    assert install(mini).state == "installed"
    for file in (shipped("config") / "envs").glob("*.yaml"):
        assert (mini / "src/config/envs" / file.name).read_bytes() == file.read_bytes()
    uninstall(mini)
    assert tree_hash(mini) == before


def test_the_hook_stands_right_after_the_import_of_run(mini: Path) -> None:
    install(mini)
    lines = (mini / "src/main.py").read_text().splitlines()
    assert lines[lines.index("from run import run") + 1].startswith(HOOK)


def test_installing_twice_changes_nothing_and_says_so(mini: Path, envs: Path) -> None:
    install(mini, envs)
    once = tree_hash(mini)
    report = install(mini, envs)
    assert tree_hash(mini) == once
    assert not report.changed
    assert report.state == "installed"
    assert "already installed" in str(report)
    assert "nothing was changed" in str(report)


def test_uninstalling_what_is_not_installed_changes_nothing_and_says_so(mini: Path, envs: Path) -> None:
    before = tree_hash(mini)
    report = uninstall(mini, envs)
    assert tree_hash(mini) == before
    assert not report.changed
    assert report.state == "not installed"
    assert "not installed" in str(report)


def test_state_looks_and_changes_nothing(mini: Path, envs: Path) -> None:
    before = tree_hash(mini)
    assert state(mini, envs).state == "not installed"
    assert tree_hash(mini) == before
    install(mini, envs)
    (mini / "src/envs/pz_wrapper.py").write_text(MINI["src/envs/pz_wrapper.py"])
    report = state(mini, envs)
    assert report.state == "partly installed"
    assert statuses(report)["src/envs/pz_wrapper.py"] == "absent"
    assert install(mini, envs).state == "installed"


def test_the_users_own_edits_in_a_patched_file_survive_uninstall(mini: Path, envs: Path) -> None:
    install(mini, envs)
    main = mini / "src/main.py"
    main.write_text("# mine, above\n" + main.read_text() + "# mine, below\n")
    uninstall(mini, envs)
    assert main.read_text() == "# mine, above\n" + MINI["src/main.py"] + "# mine, below\n"


def test_a_checkout_with_windows_line_endings_keeps_them(mini: Path, envs: Path) -> None:
    for name in MINI:
        (mini / name).write_bytes(MINI[name].replace("\n", "\r\n").encode())
    before = tree_hash(mini)
    assert install(mini, envs).state == "installed"
    for name in PATCHED:
        data = (mini / name).read_bytes()
        assert data.count(b"\n") == data.count(b"\r\n") > MINI[name].count("\n")
    uninstall(mini, envs)
    assert tree_hash(mini) == before


def test_line_endings_converted_after_installing_do_not_hide_the_edits(mini: Path, envs: Path) -> None:
    install(mini, envs)
    for name in PATCHED:
        (mini / name).write_bytes((mini / name).read_bytes().replace(b"\n", b"\r\n"))
    assert state(mini, envs).state == "installed"
    uninstall(mini, envs)
    for name in PATCHED:
        assert (mini / name).read_bytes() == MINI[name].replace("\n", "\r\n").encode()


def test_an_anchor_on_the_last_line_without_newline(mini: Path) -> None:
    (mini / "src/main.py").write_bytes(b"from run import run")
    install(mini)
    assert (mini / "src/main.py").read_bytes().startswith(b"from run import run\n" + HOOK.encode())
    uninstall(mini)
    assert (mini / "src/main.py").read_bytes() == b"from run import run"


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no symbolic links here")
def test_a_symbolic_link_stays_one(mini: Path, tmp_path: Path) -> None:
    target = tmp_path / "shared_main.py"
    (mini / "src/main.py").rename(target)
    (mini / "src/main.py").symlink_to(target)
    install(mini)
    assert (mini / "src/main.py").is_symlink()
    assert HOOK in target.read_text()
    uninstall(mini)
    assert (mini / "src/main.py").is_symlink()
    assert target.read_text() == MINI["src/main.py"]


def test_task_settings_that_changed_are_brought_up_to_date(mini: Path, envs: Path) -> None:
    before = tree_hash(mini)
    install(mini, envs)
    (envs / "fairtest_spread.yaml").unlink()
    (envs / "fairtest_tag.yaml").write_bytes(b"env: newer\n")
    assert state(mini, envs).state == "partly installed"
    assert install(mini, envs).state == "installed"
    assert not (mini / "src/config/envs/fairtest_spread.yaml").exists()
    assert (mini / "src/config/envs/fairtest_tag.yaml").read_bytes() == b"env: newer\n"
    uninstall(mini, envs)
    assert tree_hash(mini) == before


@pytest.mark.parametrize("content", [None, b"no json", b"[]", b'{"edits": [1]}'])
def test_a_lost_or_broken_record_does_not_hinder_uninstall(mini: Path, envs: Path, content: bytes | None) -> None:
    before = tree_hash(mini)
    install(mini, envs)
    if content is None:
        (mini / installer.RECORD).unlink()
    else:
        (mini / installer.RECORD).write_bytes(content)
    assert state(mini, envs).state == "installed"
    uninstall(mini, envs)
    assert tree_hash(mini) == before


def test_uninstall_points_to_a_hook_that_was_edited_by_hand(mini: Path) -> None:
    install(mini)
    main = mini / "src/main.py"
    main.write_text(main.read_text().replace("# FairTest:", "# my words:"))
    assert "src/main.py" in uninstall(mini).headline


# --- forks and refusals -----------------------------------------------------------------------------


def test_a_fork_whose_other_files_differ_gets_the_hook_alone(mini: Path) -> None:
    (mini / "src/envs/__init__.py").write_text("REGISTRY = {}\n")
    (mini / "src/envs/pz_wrapper.py").unlink()
    before = tree_hash(mini)
    report = install(mini)
    assert report.state == "installed"
    lines = {line.name: line for line in report.lines}
    assert lines["src/main.py"].status == "applied"
    assert lines["src/envs/__init__.py"].status == "not applicable"
    assert "smaclite" in lines["src/envs/__init__.py"].why
    assert lines["src/envs/pz_wrapper.py"].status == "not applicable"
    assert "no such file" in lines["src/envs/pz_wrapper.py"].why
    uninstall(mini)
    assert tree_hash(mini) == before


@pytest.mark.parametrize(
    "main",
    [
        "from run import run_sequential\n",
        "from runner import run\n",
        "from run import run\nif True:\n    pass\nfrom run import run\n",
    ],
)
def test_a_hook_without_a_place_is_refused_and_nothing_is_changed(mini: Path, envs: Path, main: str) -> None:
    (mini / "src/main.py").write_text(main)
    before = tree_hash(mini)
    with pytest.raises(FairTestError) as refusal:
        install(mini, envs)
    for word in ("main.py", "from run import run", "fairtest launch -- src/main.py", "Nothing was changed"):
        assert word in str(refusal.value)
    assert tree_hash(mini) == before
    assert known_checkout() is None


def test_a_file_of_the_user_is_never_overwritten(mini: Path, envs: Path) -> None:
    mine = mini / "src/config/envs/fairtest_tag.yaml"
    mine.write_bytes(b"mine: true\n")
    before = tree_hash(mini)
    assert statuses(state(mini, envs))["src/config/envs/fairtest_tag.yaml"] == "not applicable"
    with pytest.raises(FairTestError, match=r"fairtest_tag\.yaml"):
        install(mini, envs)
    assert tree_hash(mini) == before
    uninstall(mini, envs)
    assert tree_hash(mini) == before


def test_settings_that_the_user_changed_after_installing_are_kept(mini: Path, envs: Path) -> None:
    install(mini, envs)
    mine = mini / "src/config/envs/fairtest_tag.yaml"
    mine.write_bytes(b"mine: true\n")
    assert install(mini, envs).state == "installed"
    assert mine.read_bytes() == b"mine: true\n"
    report = uninstall(mini, envs)
    assert mine.read_bytes() == b"mine: true\n"
    assert "fairtest_tag.yaml" in report.headline


def test_a_checkout_without_a_folder_for_settings_still_gets_the_hook(mini: Path, envs: Path) -> None:
    shutil.rmtree(mini / "src/config")
    report = install(mini, envs)
    assert report.state == "installed"
    assert statuses(report)["src/config/envs/fairtest_tag.yaml"] == "not applicable"
    assert not (mini / "src/config").exists()


@pytest.mark.parametrize("action", [install, uninstall])
@pytest.mark.parametrize("failing_write", [1, 2, 3])
def test_a_write_that_fails_midway_is_rolled_back(
    mini: Path, envs: Path, monkeypatch: pytest.MonkeyPatch, action: Callable[..., Report], failing_write: int
) -> None:
    if action is uninstall:
        install(mini, envs)
    before = tree_hash(mini)
    replace, calls = os.replace, []

    def fail_once(source: str, target: str) -> None:
        calls.append(target)
        if len(calls) == failing_write:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_once)
    with pytest.raises(FairTestError, match="No space left"):
        action(mini, envs)
    assert tree_hash(mini) == before


def test_a_disk_that_stays_broken_is_rolled_back_in_place(
    mini: Path, envs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree_hash(mini)
    replace, calls = os.replace, []

    def fail_from_the_second(source: str, target: str) -> None:
        calls.append(target)
        if len(calls) >= 2:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail_from_the_second)
    with pytest.raises(FairTestError):
        install(mini, envs)
    assert tree_hash(mini) == before


def test_an_interrupt_midway_is_rolled_back_too(mini: Path, envs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree_hash(mini)
    replace, calls = os.replace, []

    def interrupt(source: str, target: str) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        install(mini, envs)
    assert tree_hash(mini) == before


def test_a_folder_that_may_not_be_written_is_refused_before_anything_is_changed(
    mini: Path, envs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = tree_hash(mini)
    folder = mini / "src/envs"
    folder.chmod(0o555)
    try:
        if os.access(folder, os.W_OK):  # root may write anywhere: let the question be answered for a user
            access = os.access
            monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder.resolve() and access(path, mode))
        with pytest.raises(FairTestError, match="no permission"):
            install(mini, envs)
    finally:
        folder.chmod(0o755)
    assert tree_hash(mini) == before


def test_what_is_no_checkout_is_refused_with_value_rule_and_next_step(tmp_path: Path, mini: Path) -> None:
    (tmp_path / "empty").mkdir()
    cases = {
        tmp_path / "nowhere": "does not exist",
        tmp_path / "empty": "is not an EPyMARL checkout",
        mini / "src/main.py": "is a file",
        mini / "src": "Did you mean",
    }
    for path, reason in cases.items():
        for action in (install, state, uninstall):
            with pytest.raises(FairTestError) as refusal:
                action(path)
            assert reason in str(refusal.value)
            assert str(path) in str(refusal.value)
            assert "src/runners/__init__.py" in str(refusal.value)


# --- which checkout ---------------------------------------------------------------------------------


def test_install_remembers_the_checkout_and_uninstall_forgets_it(mini: Path, tmp_path: Path) -> None:
    assert known_checkout() is None
    install(mini)
    register = tmp_path / "xdg/fairtest/checkout.json"
    assert json.loads(register.read_text()) == {"checkout": str(mini.resolve())}
    assert known_checkout() == mini.resolve()
    uninstall(mini)
    assert known_checkout() is None
    assert not register.exists()


def test_forgetting_another_checkout_leaves_the_registered_one(mini: Path, tmp_path: Path) -> None:
    remember(mini)
    forget(tmp_path)
    assert known_checkout() == mini.resolve()


def test_a_registered_checkout_that_vanished_counts_as_none(mini: Path) -> None:
    remember(mini)
    shutil.rmtree(mini)
    assert known_checkout() is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"checkout": 3}', b"\xff"])
def test_a_broken_register_counts_as_empty(tmp_path: Path, mini: Path, content: bytes) -> None:
    (tmp_path / "xdg/fairtest").mkdir(parents=True)
    (tmp_path / "xdg/fairtest/checkout.json").write_bytes(content)
    assert known_checkout() is None
    remember(mini)
    assert known_checkout() == mini.resolve()


def test_the_environment_variable_wins_and_must_be_a_checkout(
    mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPYMARL_HOME", str(mini))
    assert known_checkout() == mini.resolve()
    monkeypatch.setenv("EPYMARL_HOME", str(tmp_path / "wrong"))
    with pytest.raises(FairTestError) as refusal:
        known_checkout()
    assert "EPYMARL_HOME" in str(refusal.value)
    assert str(tmp_path / "wrong") in str(refusal.value)
    assert "src/main.py" in str(refusal.value)


def test_an_unwritable_register_does_not_undo_an_installation(
    mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    report = install(mini)
    assert report.state == "installed"
    assert "EPYMARL_HOME" in report.headline


def test_is_checkout_asks_for_every_mark(mini: Path) -> None:
    assert is_checkout(mini)
    for mark in MARKS:
        data = (mini / mark).read_bytes()
        (mini / mark).unlink()
        assert not is_checkout(mini)
        (mini / mark).write_bytes(data)


# --- command line -----------------------------------------------------------------------------------


def run_cli(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["install", *words])
    return args.func(args)


def test_the_command_installs_checks_and_uninstalls(mini: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree_hash(mini)
    assert run_cli(str(mini), "--check") == 1
    assert "Next:" not in capsys.readouterr().out
    assert run_cli(str(mini)) == 0
    said = capsys.readouterr().out
    assert f"Next: cd {shlex.quote(str(mini.resolve()))} && python src/main.py" in said.splitlines()[-1]
    assert "fairtest=True" in said.splitlines()[-1]
    assert run_cli("--check") == 0, "the checkout is known by now"
    assert "applied" in capsys.readouterr().out
    assert run_cli("--uninstall") == 0
    assert tree_hash(mini) == before
    with pytest.raises(FairTestError, match="CHECKOUT"):
        run_cli("--uninstall")


def test_the_command_says_which_checkout_it_replaces(
    mini: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(mini, other)
    assert run_cli(str(mini)) == 0
    assert "before, it was" not in capsys.readouterr().out
    assert run_cli(str(other)) == 0
    assert f"before, it was {mini.resolve()}." in capsys.readouterr().out


# --- the edited checkout really runs ----------------------------------------------------------------


def run_in(src: Path, code: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], cwd=src, env=env, capture_output=True, text=True
    )


WITHOUT_SMACLITE = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name == "smaclite":
            raise ModuleNotFoundError("No module named 'smaclite'", name=name)
sys.meta_path.insert(0, Nothing())
"""
MAKE_SMACLITE = """
import envs
try:
    envs.REGISTRY["smaclite"](common_reward=True, reward_scalarisation="sum", map_name="2s3z", seed=1,
                              time_limit=9)
except ImportError as error:
    assert "smaclite is missing" in str(error), error
else:
    raise SystemExit("no ImportError")
"""
MAKE_MPE = """
import envs, gymnasium
env = gymnasium.make("pz-mpe-simple-spread-v3", max_cycles=9)
obs, info = env.reset(seed=1)
assert len(obs) == 3
obs, rewards, done, truncated, info = env.step([1, 2, 3])
assert len(rewards) == 3
"""


@pytest.mark.slow
def test_an_installed_checkout_imports_its_environments_without_smaclite_and_makes_those_of_mpe(real: Path) -> None:
    pytest.importorskip("pettingzoo")
    src = real / "src"
    assert "smaclite" in run_in(src, WITHOUT_SMACLITE + "import envs").stderr, "stock EPyMARL is broken"
    install(real)
    done = run_in(src, WITHOUT_SMACLITE + MAKE_SMACLITE + MAKE_MPE)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_helpers_do_the_same_for_an_unedited_checkout(real: Path) -> None:
    pytest.importorskip("pettingzoo")
    before = tree_hash(real)
    activate = (
        "from epymarl_fairtest.host import mpe2_bridge, smaclite_guard\n"
        "for _ in range(2): mpe2_bridge.activate(); smaclite_guard.activate()\n"
    )
    done = run_in(real / "src", activate + MAKE_MPE + (MAKE_SMACLITE if smaclite_guard.is_missing() else ""))
    assert done.returncode == 0, done.stderr
    assert tree_hash(real) == before


# --- the helpers alone ------------------------------------------------------------------------------


def fake_packages(folder: Path, *files: str) -> str:
    """Code that lets Python see these files as pettingzoo and mpe2, and no others of that name."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("parallel_env = __name__\n")
    return f"""
import sys
from importlib.machinery import PathFinder
class Only:
    def find_spec(self, name, path=None, target=None):
        if name in ("pettingzoo", "mpe2"):
            spec = PathFinder.find_spec(name, [{str(folder)!r}])
            if spec is None:
                raise ModuleNotFoundError(name, name=name)
            return spec
sys.meta_path.insert(0, Only())
import importlib.util
find = importlib.util.find_spec
def quiet(name, package=None):
    try:
        return find(name, package)
    except ModuleNotFoundError:
        return None
importlib.util.find_spec = quiet
from epymarl_fairtest.host import mpe2_bridge
"""


def test_the_bridge_gives_mpe2s_own_module_under_the_old_name(tmp_path: Path) -> None:
    see = fake_packages(
        tmp_path, "pettingzoo/__init__.py", "mpe2/__init__.py", "mpe2/simple_new_v7.py", "mpe2/deep/inner.py"
    )
    (tmp_path / "pettingzoo/mpe").mkdir()
    (tmp_path / "pettingzoo/mpe/__init__.py").write_text("raise ImportError('moved to mpe2')\n")
    code = see + (
        "assert 'mpe2' not in sys.modules and mpe2_bridge.activate() and mpe2_bridge.activate()\n"
        "assert 'mpe2' not in sys.modules, 'cheap: nothing is imported yet'\n"
        "import importlib, gymnasium\n"
        "module = importlib.import_module('pettingzoo.mpe.simple_new_v7')\n"
        "import mpe2.simple_new_v7, mpe2.deep.inner, pettingzoo.mpe.deep.inner as inner\n"
        "assert module is mpe2.simple_new_v7 and inner is mpe2.deep.inner\n"
        "assert module.__spec__.name == module.__name__ == 'mpe2.simple_new_v7'\n"
        "spec = gymnasium.spec('pz-mpe-simple-new-v7')\n"
        "assert spec.kwargs == {'lib_name': 'mpe', 'env_name': 'simple_new_v7'}\n"
        "assert spec.entry_point == 'envs.pz_wrapper:PettingZooWrapper'\n"
    )
    done = run_in(tmp_path, code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "files",
    [
        ("pettingzoo/__init__.py", "pettingzoo/mpe/simple_v3.py", "mpe2/__init__.py", "mpe2/simple_v3.py"),
        ("pettingzoo/__init__.py",),
        ("mpe2/__init__.py", "mpe2/simple_v3.py"),
        (),
    ],
    ids=["pettingzoo has MPE", "no mpe2", "no pettingzoo", "neither"],
)
def test_the_bridge_stays_out_of_the_way(tmp_path: Path, files: tuple[str, ...]) -> None:
    code = fake_packages(tmp_path, *files) + (
        "before = list(sys.meta_path)\n"
        "assert mpe2_bridge.activate() is False and sys.meta_path == before\n"
        "import gymnasium\n"
        "assert not [name for name in gymnasium.registry if name.startswith('pz-mpe')]\n"
    )
    if "pettingzoo/mpe/simple_v3.py" in files:
        code += "import pettingzoo.mpe.simple_v3 as m; assert m.parallel_env == 'pettingzoo.mpe.simple_v3'\n"
    done = run_in(tmp_path, code)
    assert done.returncode == 0, done.stderr


def test_a_present_smaclite_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "smaclite.py").write_text("real = True\n")
    code = (
        "from epymarl_fairtest.host import smaclite_guard\n"
        "assert smaclite_guard.activate() is False\n"
        "import smaclite, sys; assert smaclite.real and 'envs.smaclite_wrapper' not in sys.modules\n"
        "assert smaclite_guard.activate() is False\n"
    )
    done = run_in(tmp_path, code)
    assert done.returncode == 0, done.stderr


def test_the_smaclite_stub_bears_being_looked_at(tmp_path: Path) -> None:
    code = (
        "from epymarl_fairtest.host import smaclite_guard\n"
        "if not smaclite_guard.is_missing(): raise SystemExit(0)\n"
        "assert smaclite_guard.activate() and smaclite_guard.activate() and smaclite_guard.is_missing()\n"
        "import inspect, importlib.util, smaclite\n"
        "inspect.getmodule(1); assert not hasattr(smaclite, '__file__')\n"
        "assert importlib.util.find_spec('smaclite') is not None\n"
        "try:\n    from smaclite import SMACliteEnv\n"
        "except ImportError as error: assert 'smaclite is missing' in str(error)\n"
        "else: raise SystemExit('no ImportError')\n"
    )
    done = run_in(tmp_path, code)
    assert done.returncode == 0, done.stderr
