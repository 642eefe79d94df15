"""The first screen of `fairtest --help`, and the shell completion that is read off the same parser."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys

import pytest

from epymarl_fairtest.commands import main
from epymarl_fairtest.commands.completion import SHELLS
from epymarl_fairtest.commands.parser import make_parser


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


def test_help_fits_a_screen_and_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert stop.value.code == 0
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 88
    assert "fairtest run --policy DIR --out RUN" in "\n".join(lines[:8])
    told = {line.split()[0] for line in lines if line.startswith("  ")}
    assert set(commands(make_parser())) <= told


@pytest.mark.parametrize("shell", SHELLS)
def test_every_script_knows_commands_options_and_choices(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    known = set(re.findall(r"[\w-]+", script))
    assert set(commands(make_parser())) <= known
    assert {"version", "policy", "resume", "rq3a", "check", "episodes"} <= {word.lstrip("-") for word in known}


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fairtest ru", {"run", "runs"}),
        ("fairtest policies ch", {"check"}),
        ("fairtest run --res", {"--resume"}),
        ("fairtest study rq3", {"rq3a", "rq3b", "rq3c"}),
        ("fairtest gate runs/1 --max-rat", {"--max-rate"}),
    ],
)
def test_bash_completes(line: str, expected: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    typed = line.split()
    ask = f"COMP_WORDS=({' '.join(typed)}); COMP_CWORD={len(typed) - 1}; _shtab_fairtest"
    ask += '; printf "%s\\n" "${COMPREPLY[@]}"'
    answer = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
    assert set(answer.stdout.split()) == expected
    assert answer.stderr == ""


def test_a_shell_without_completion_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "csh"]) == 2
    assert "'csh'" in (told := capsys.readouterr().err)
    assert "bash, zsh, fish" in told


@pytest.mark.slow
def test_output_that_nobody_reads_any_more_is_no_traceback() -> None:
    command = f"{sys.executable} -m epymarl_fairtest completion fish | head -n 1"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert ended.stdout.count("\n") == 1
    assert "Traceback" not in ended.stderr
