"""Can FairTest be installed on every Python that it supports, with the versions of constraints.txt?

    python tools/pythons.py [--folder build/pythons] [--resolve] [--index URL] [3.10 3.11 …]

For each version a fresh environment, `pip install -c constraints.txt .` in it, and one look at the program. With
--resolve pip only works out what it would install, which takes a minute and no space. Interpreters are looked for on
PATH and among pyenv's; those that are missing are named. Exit code 1 if an installation fails, 2 if nothing was tried.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOOK = "import epymarl_fairtest; from epymarl_fairtest.commands import main; raise SystemExit(main(['--version']))"


def supported() -> list[str]:
    """As setup.py lists them."""
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "setup.py").read_text())


def interpreter(version: str) -> Path | None:
    """The newest of that version; one that does not start (a pyenv shim of nothing) is none."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    own = sorted(root.glob(f"{version}.*/bin/python"), key=lambda path: int(path.parts[-3].rpartition(".")[2]))
    for candidate in [*reversed(own), shutil.which(f"python{version}")]:
        if candidate and _says(candidate) == version:
            return Path(candidate)
    return None


def _says(python: str | Path) -> str:
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def installed(python: Path, folder: Path, resolve: bool, index: str | None) -> str:
    """Empty if it can be installed, otherwise the last lines of what went wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    inside = str(folder / "bin" / "python")
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", "constraints.txt"]
    pip += ["--extra-index-url", index] if index else []
    steps = [[str(python), "-m", "venv", str(folder)], [*pip, *(["--dry-run"] if resolve else []), "."]]
    for step in steps if resolve else [*steps, [inside, "-c", LOOK]]:
        done = subprocess.run(step, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            return "\n".join((done.stderr or done.stdout).strip().splitlines()[-6:])
    return ""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=supported(), help="3.10 3.11 … (those of setup.py)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "pythons", help="where environments are made")
    parser.add_argument("--resolve", action="store_true", help="install nothing, only work out what would be")
    parser.add_argument("--index", help="another package index, for example PyTorch's of builds without CUDA")
    args = parser.parse_args(words)
    tried, failed = 0, 0
    for version in args.versions:
        python = interpreter(version)
        if python is None:
            print(f"{version}: no interpreter here", flush=True)
            continue
        wrong = installed(python, args.folder.resolve() / version, args.resolve, args.index)
        tried, failed = tried + 1, failed + bool(wrong)
        fine = "can be resolved" if args.resolve else "installed, and starts"
        print(f"{version}: {'FAILED' if wrong else fine}\n{wrong}".strip(), flush=True)
    return 2 if not tried else int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
