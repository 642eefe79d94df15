"""`fairtest doctor`: each known breakage is named where it bites, and only there."""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from epymarl_fairtest.commands import doctor
from epymarl_fairtest.commands.doctor import Finding, Machine, examine, render
from epymarl_fairtest.core.checkout import known_checkout
from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.host.install import install, uninstall

MINI = {
    "src/main.py": "from run import run\n",
    "src/run.py": "import sacred\n",
    "src/runners/__init__.py": "",
    "src/envs/__init__.py": "from .smaclite_wrapper import SMACliteWrapper\n",
    "src/envs/gymma.py": "import gymnasium as gym\n\n\nclass GymmaWrapper: ...\n",
    "src/envs/pz_wrapper.py": "import pettingzoo\n\n\ndef render(env, mode):\n    return env.render(mode)\n",
    "src/components/episode_buffer.py": "def parse(items):\n    parsed = []\n    return parsed\n",
}
MODERN = {
    "PIL": "11.0.0",
    "cloudpickle": "3.1.2",
    "lbforaging": "2.0.0",
    "matplotlib": "3.10.0",
    "moocore": "0.3.2",
    "mpe2": "1.1.1",
    "numba": "0.60.0",
    "pettingzoo": "1.27.0",
    "sacred": "0.8.7",
    "scipy": "1.15.0",
    "setuptools": "80.10.2",
    "sklearn": "1.6.0",  # scikit-learn, as it is imported
    "torch": "2.5.0",
}


class Imagined(Machine):
    """A machine with these distributions, and the behaviour of theirs that FACTS records."""

    python = (3, 11)
    answer: Callable[[str], str | None] | None = None  # instead of what `import_error` would say

    def __init__(self, without: tuple[str, ...] = (), **versions: str):
        self.versions = {**MODERN, **{name.replace("_", "-"): v for name, v in versions.items()}}
        for name in without:
            del self.versions[name]

    def version(self, distribution: str) -> str | None:
        return self.versions.get(distribution)

    def has(self, module: str) -> bool:
        return module in self.versions

    def pettingzoo_has_mpe(self) -> bool:
        return not doctor._at_least(self.version("pettingzoo"), 1, 26)

    def import_error(self, module: str) -> str | None:
        if self.answer is not None:
            return self.answer(module)
        if module == "sacred" and doctor._at_least(self.version("setuptools") or "99", 81):
            return "ModuleNotFoundError: No module named 'pkg_resources'"
        if module.startswith("mpe2") and not doctor._at_least(self.version("pettingzoo"), 1, 25):
            return "ImportError: cannot import name 'AgentSelector'"
        return None


@pytest.fixture(autouse=True)
def private_register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("EPYMARL_HOME", raising=False)


@pytest.fixture
def mini(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name, text in MINI.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the user's own EPyMARL, without any FairTest in them."""
    known = known_checkout()  # module-scoped: runs before the register is redirected
    if known is None:
        pytest.skip("no EPyMARL checkout known: set EPYMARL_HOME or run fairtest install")
    root = tmp_path_factory.mktemp("stock") / "epymarl"
    shutil.copytree(known / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("xdg")))
        uninstall(root)
    return root


def found(checkout: Path | None, machine: Machine) -> dict[str, Finding]:
    findings = examine(checkout, machine)
    names = [finding.name for finding in findings]
    assert len(names) == len(set(names)), "one finding per name"
    for finding in findings:
        assert finding.status == "ok" or finding.remedy, "what is wrong comes with what to do"
    return {finding.name: finding for finding in findings}


def worst(findings: dict[str, Finding]) -> set[str]:
    return {name for name, finding in findings.items() if finding.status == "problem"}


# --- the machine ------------------------------------------------------------------------------------


def test_a_sound_machine_has_no_problem() -> None:
    assert worst(found(None, Imagined())) == set()


@pytest.mark.parametrize(("version", "status"), [((3, 9), "problem"), ((3, 10), "ok"), ((3, 13), "problem")])
def test_python(version: tuple[int, int], status: str) -> None:
    machine = Imagined()
    machine.python = version
    assert found(None, machine)["python"].status == status


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (Imagined(setuptools="81.0.0"), "setuptools 81.0.0"),
        (Imagined(without=("setuptools",)), "no setuptools"),
    ],
)
def test_sacred_without_pkg_resources(machine: Machine, words: str) -> None:
    finding = found(None, machine)["sacred"]
    assert finding.status == "problem"
    assert words in finding.detail
    assert "pkg_resources" in finding.detail
    assert "setuptools<81" in finding.remedy


def test_sacred_that_imports_is_no_problem_whatever_setuptools_says() -> None:
    machine = Imagined(setuptools="99")
    machine.answer = lambda module: None
    assert found(None, machine)["sacred"].status == "ok"


def test_sacred_broken_for_another_reason_tells_it() -> None:
    machine = Imagined()
    machine.answer = lambda module: "ImportError: something else"
    finding = found(None, machine)["sacred"]
    assert finding.status == "problem"
    assert "something else" in finding.detail


@pytest.mark.parametrize(
    ("missing", "status"),
    [
        ("sacred", "problem"),
        ("torch", "problem"),
        ("scipy", "problem"),
        ("moocore", "problem"),
        ("lbforaging", "warning"),
        ("cloudpickle", "warning"),
        ("matplotlib", "warning"),
        ("numba", "warning"),
    ],
)
def test_a_missing_package(missing: str, status: str) -> None:
    finding = found(None, Imagined(without=(missing,)))[missing]
    assert finding.status == status
    assert f"pip install {missing}" in finding.remedy


def test_a_missing_pillow_is_told_by_the_name_to_install() -> None:
    finding = found(None, Imagined(without=("PIL",)))["PIL"]
    assert (finding.status, finding.remedy) == ("warning", "pip install pillow")


@pytest.mark.parametrize(("protobuf", "mentioned"), [("3.20.3", False), ("4.21.0", True), ("7.0.0", True)])
def test_tensorboard_logger_only_where_it_is_installed(protobuf: str, mentioned: bool) -> None:
    assert "tensorboard" not in found(None, Imagined(protobuf=protobuf))
    machine = Imagined(protobuf=protobuf, tensorboard_logger="0.1.0")
    assert ("tensorboard" in found(None, machine)) is mentioned


# --- MPE --------------------------------------------------------------------------------------------


def test_a_pettingzoo_without_mpe_needs_mpe2(mini: Path) -> None:
    machine = Imagined(without=("mpe2",))
    for checkout in (None, mini):
        finding = found(checkout, machine)["mpe"]
        assert finding.status == "problem"
        assert "mpe2" in finding.remedy


def test_a_pettingzoo_without_mpe_needs_a_checkout_that_knows_mpe2(mini: Path) -> None:
    finding = found(mini, Imagined())["mpe"]
    assert finding.status == "problem"
    assert "NameNotFound" in finding.detail
    assert f"fairtest install {mini}" in finding.remedy
    assert "fairtest launch" in finding.remedy
    install(mini)
    assert found(mini, Imagined())["mpe"].status == "ok"


def test_an_old_pettingzoo_holds_mpe_itself(mini: Path) -> None:
    assert found(mini, Imagined(without=("mpe2",), pettingzoo="1.24.3"))["mpe"].status == "ok"


def test_mpe2_with_an_old_pettingzoo(mini: Path) -> None:
    findings = found(mini, Imagined(pettingzoo="1.24.3"))
    assert findings["mpe2"].status == "warning", "EPyMARL takes pettingzoo's own MPE"
    assert "AgentSelector" in findings["mpe2"].detail
    assert "1.27" in findings["mpe2"].remedy
    assert findings["mpe"].status == "ok"


def test_mpe2_that_does_not_import_beside_a_pettingzoo_without_mpe() -> None:
    machine = Imagined(pettingzoo="1.26.1")
    machine.answer = lambda module: "ImportError: no" if module.startswith("mpe2") else None
    findings = found(None, machine)
    assert findings["mpe2"].status == "problem"
    assert "1.27" in findings["mpe2"].remedy


def test_without_pettingzoo_only_two_tasks_are_lost() -> None:
    assert found(None, Imagined(without=("pettingzoo", "mpe2")))["mpe"].status == "warning"


# --- the checkout -----------------------------------------------------------------------------------


def test_without_a_checkout_it_says_how_to_register_one() -> None:
    finding = found(None, Imagined())["checkout"]
    assert finding.status == "warning"
    assert "no EPyMARL checkout is known" in finding.detail
    assert "fairtest install" in finding.remedy
    assert "EPYMARL_HOME" in finding.remedy


def test_a_stock_checkout_has_three_problems_and_installing_solves_them(mini: Path) -> None:
    before = found(mini, Imagined())
    assert worst(before) == {"hook", "smaclite", "mpe"}
    assert "ConfigAddedError" in before["hook"].detail
    for name in worst(before):
        assert "fairtest install" in before[name].remedy
        assert "fairtest launch" in before[name].remedy
    install(mini)
    assert worst(found(mini, Imagined())) == set()


def test_the_users_own_epymarl_has_the_same_problems_until_fairtest_is_installed(stock: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(stock, tmp_path / "epymarl"))
    before = found(root, Imagined())
    assert worst(before) == {"hook", "smaclite", "mpe"}
    assert before["render"].status == "warning"
    assert before["indexing"].status == "ok"
    install(root)
    assert worst(found(root, Imagined())) == set()


def test_an_installed_smaclite_is_no_problem(mini: Path) -> None:
    assert found(mini, Imagined(smaclite="0.0.1"))["smaclite"].status == "ok"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import smaclite\n", True),
        ("try:\n    from .smaclite_wrapper import X\nexcept ImportError:\n    X = None\n", False),
        ("def make():\n    from .smaclite_wrapper import X\n", False),
        ("REGISTRY = {}\n", False),
        ("this is no python\n", False),
    ],
)
def test_only_an_unguarded_import_of_smaclite_stops_every_run(mini: Path, source: str, problem: bool) -> None:
    (mini / "src/envs/__init__.py").write_text(source)
    assert ("smaclite" in worst(found(mini, Imagined()))) is problem


def test_a_hook_that_does_not_fit_leads_to_launch_alone(mini: Path) -> None:
    (mini / "src/main.py").write_text("from somewhere import run\n")
    remedy = found(mini, Imagined())["hook"].remedy
    assert "fairtest launch" in remedy
    assert "fairtest install" not in remedy


def test_a_half_installed_checkout_is_a_warning(mini: Path) -> None:
    install(mini)
    (mini / "src/envs/__init__.py").write_text(MINI["src/envs/__init__.py"])
    finding = found(mini, Imagined(smaclite="0.0.1"))["hook"]
    assert finding.status == "warning"
    assert "src/envs/__init__.py" in finding.detail


def test_rendering_is_a_warning_only_where_a_mode_is_passed(mini: Path) -> None:
    assert found(mini, Imagined())["render"].status == "warning"
    (mini / "src/envs/pz_wrapper.py").write_text("def render(env):\n    return env.render()\n")
    assert "render" not in found(mini, Imagined())


def test_files_that_a_fork_does_not_have_are_no_trouble(mini: Path) -> None:
    (mini / "src/envs/pz_wrapper.py").unlink()
    (mini / "src/components/episode_buffer.py").unlink()
    findings = found(mini, Imagined())
    assert "render" not in findings
    assert "indexing" not in findings


def test_what_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FairTestError, match=r"src/main\.py"):
        examine(tmp_path, Imagined())


# --- this machine -----------------------------------------------------------------------------------


def test_this_machine_is_examined_without_an_error(mini: Path) -> None:
    findings = {finding.name: finding for finding in examine(mini)}
    assert {"python", "sacred", "torch", "numba", "lbforaging", "cloudpickle", "hook"} <= set(findings)
    assert str(sys.version_info[1]) in findings["python"].detail


def test_a_probe_tells_the_last_line_of_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "probe_good.py").write_text("")
    (tmp_path / "probe_bad.py").write_text("raise ImportError('this is why')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    assert Machine().import_error("probe_good") is None
    assert Machine().import_error("probe_bad") == "ImportError: this is why"
    assert "No module named" in (Machine().import_error("probe_absent") or "")


def test_a_probe_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "probe_slow.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(doctor, "_PROBE_SECONDS", 0.5)
    assert "longer than" in (Machine().import_error("probe_slow") or "")


# --- output -----------------------------------------------------------------------------------------


def test_the_verdict_comes_first_and_the_worst_next() -> None:
    good, warn, bad = (
        Finding("a", "ok", "fine"),
        Finding("bb", "warning", "slow", "hurry"),
        Finding("ccc", "problem", "broken", "mend it"),
    )
    text = render([good, warn, bad]).splitlines()
    assert text[0].startswith("1 problem")
    assert "1 warning" in text[0]
    assert "ccc" in text[2]
    assert "mend it" in text[3]
    assert "Ready" in render([good, warn]).splitlines()[0]
    assert "1 warning" in render([good, warn])
    assert render([good]).startswith("Ready")


def run_cli(*words: str) -> int:
    parser = argparse.ArgumentParser()
    doctor.add_parser(parser.add_subparsers())
    args = parser.parse_args(["doctor", *words])
    return args.func(args)


def test_the_command_exits_with_1_if_there_is_a_problem(
    mini: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "Machine", Imagined)
    assert run_cli(str(mini)) == 1
    assert "problem" in capsys.readouterr().out.splitlines()[0]
    assert run_cli() == 0, "no checkout, no problem: only a warning"
    capsys.readouterr()
    install(mini)
    assert run_cli("--json") == 0
    findings = json.loads(capsys.readouterr().out)
    assert {"name": "checkout", "status": "ok", "detail": str(mini.resolve()), "remedy": ""} in findings
