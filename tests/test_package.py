"""What is published: wheel and sdist, installed where nothing else of ours is, and what goes with a release."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from epymarl_fairtest import __version__

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORDS = ["--method", "random", "--budget", "60", "--seed", "1", "--set", "explain=0", "--set", "report=false", "--json"]


def called(*command: Any, cwd: Path) -> str:
    """What it prints; without what this process was started with."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "EPYMARL_HOME")}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, and the wheel that is built from the sdist."""
    pytest.importorskip("build")
    out = tmp_path_factory.mktemp("dist")
    called(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    return {"".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix: path for path in out.iterdir()}


@pytest.fixture(scope="module")
def installed(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel and the libraries that this one has; ours is not among them."""
    home = tmp_path_factory.mktemp("clean")
    called(sys.executable, "-m", "venv", home / "venv", cwd=home)
    python = home / "venv" / "bin" / "python"
    (site,) = (home / "venv" / "lib").glob("python*/site-packages")
    libraries = [path for path in sys.path if path.endswith("site-packages")]  # their own .pth files are not read
    (site / "libraries.pth").write_text("\n".join(libraries) + "\n")
    called(python, "-m", "pip", "install", "--no-deps", "--no-index", built[".whl"], cwd=home)
    return python.parent


@pytest.mark.fresh
def test_the_wheel_tests_a_shipped_team_where_no_clone_is(installed: Path, tmp_path: Path) -> None:
    where = called(installed / "python", "-c", "import epymarl_fairtest as f; print(f.__file__)", cwd=tmp_path)
    assert str(installed.parent) in where
    told = called(installed / "fairtest", "run", "--policy", "policies/mpe-qmix", "--out", "run", *WORDS, cwd=tmp_path)
    assert json.loads(told)["evaluated"] == 60
    program = "import epymarl_fairtest as f; print(f.load('run').summary['evaluated'])"
    assert int(called(installed / "python", "-c", program, cwd=tmp_path)) == 60


@pytest.mark.fresh
def test_nothing_that_the_wheel_requires_is_missing(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run([installed / "python", "-m", "pip", "check"], cwd=tmp_path, capture_output=True, text=True)
    ours = [line for line in done.stdout.splitlines() if line.startswith("epymarl-fairtest")]
    assert not ours, "PyMARLzoo+, installed without its dependencies, may complain; we may not"


@pytest.mark.fresh
def test_wheel_and_sdist_hold_what_they_need_and_no_more(built: dict[str, Path]) -> None:
    wheel = zipfile.ZipFile(built[".whl"]).namelist()
    for name in (
        "py.typed",
        "report/static/report.js",
        "shipped/config/fairtest.yaml",
        "shipped/policies/pp-iql/agent.th",
    ):
        assert f"epymarl_fairtest/{name}" in wheel
    assert not [name for name in wheel if name.startswith(("tests/", "docs/", "tools/", "benchmarks/"))]
    assert not [name for name in wheel if "__pycache__" in name]
    with tarfile.open(built[".tar.gz"]) as archive:
        source = archive.getnames()
    assert f"epymarl_fairtest-{__version__}/setup.py" in source
    assert f"epymarl_fairtest-{__version__}/LICENSE" in source
    assert built[".whl"].stat().st_size < 30_000_000


# --- what goes with it --------------------------------------------------------------------------------


def test_the_citation_is_of_this_version_and_of_the_readmes_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    paper = citation["preferred-citation"]
    assert str(citation["version"]) == __version__
    assert citation["license"] == "Apache-2.0"
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert paper["title"] in readme
    assert all(f"{one['given-names']} {one['family-names']}" in readme for one in paper["authors"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_commands_that_exist(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for command in commands:
        made = re.fullmatch(r"make ([\w-]+)", command)
        assert made is None or made[1] in targets
    assert all("timeout-minutes" in job for job in jobs.values() if len(job["steps"]) > 2)


def test_the_workflow_tests_the_versions_that_setup_promises() -> None:
    (matrix,) = re.findall(r"python: \[(.+)\]", (ROOT / ".github" / "workflows" / "tests.yml").read_text())
    promised = re.findall(r"Python :: (3\.\d+)", (ROOT / "setup.py").read_text())
    assert matrix.replace('"', "").split(", ") == promised
