"""Every study of docs/tables.md once more: the commands that stand there, one after the other, then their tables.

python tools/run_studies.py [--list] [--out FOLDER]

It takes days on one machine. A study that was interrupted goes on where it stopped, and what another has finished is
taken from it where the command says so (`--runs-from`).
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def studies() -> list[list[str]]:
    """The words of every `fairtest study` on the page, in its order."""
    blocks = BLOCK.findall((ROOT / "docs" / "tables.md").read_text(encoding="utf-8"))
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True))[:2] == ["fairtest", "study"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the commands and run nothing")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "studies", help="where the studies' folders are made"
    )
    args = parser.parse_args()
    made = []
    for words in studies():
        print(shlex.join(words), flush=True)
        made.append(args.out / words[words.index("--out") + 1])
        if not args.list:
            args.out.mkdir(parents=True, exist_ok=True)
            given = [str(ROOT / word) if word.startswith("policies/") else word for word in words[1:]]
            subprocess.run([sys.executable, "-m", "epymarl_fairtest", *given], cwd=args.out, check=True)
    if not args.list:
        page = [sys.executable, str(ROOT / "tools" / "results_page.py"), "--write", "--take", *map(str, made)]
        subprocess.run(page, check=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
