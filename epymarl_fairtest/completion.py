"""`fairtest completion`: what a shell needs to complete fairtest's commands and options, read off its own parser."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from epymarl_fairtest.errors import FairTestError

Parser = argparse.ArgumentParser


def add_completion_parser(subparsers: Any, root: Callable[[], Parser]) -> None:
    parser = subparsers.add_parser(
        "completion",
        help="completion for your shell",
        epilog='example: eval "$(fairtest completion bash)" in ~/.bashrc; fairtest completion fish | source',
    )
    parser.add_argument("shell", metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    parser.set_defaults(func=lambda args: show(args.shell, root()))


def show(shell: str, parser: Parser) -> int:
    if shell not in SHELLS:
        raise FairTestError(f"There is no completion for {shell!r}; there is one for {', '.join(SHELLS)}.")
    print(SHELLS[shell](list(words(parser))))
    return 0


def words(parser: Parser, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[tuple[str, str]]]]:
    """Per command (as its words) what may follow, each with its help."""
    found: list[tuple[str, str]] = []
    for action in parser._actions:
        found += [(option, action.help or "") for option in action.option_strings if option.startswith("--")]
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            found += [(name, helps.get(name, "")) for name in action.choices]
            for name, sub in action.choices.items():
                yield from words(sub, (*path, name))
        elif action.choices and not action.option_strings:
            found += [(str(choice), "") for choice in action.choices]
    yield path, found


def bash(table: list[tuple[tuple[str, ...], list[tuple[str, str]]]]) -> str:
    cases = "\n".join(
        f"    {shlex.quote(' '.join(path))}) options={shlex.quote(' '.join(name for name, _ in found))};;"
        for path, found in table
    )
    return f"""_fairtest() {{
  local word path="" options="" current="${{COMP_WORDS[COMP_CWORD]}}"
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case " {" ".join(sorted({word for path, _ in table for word in path}))} " in
      *" $word "*) path="${{path:+$path }}$word";;
    esac
  done
  case "$path" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$options" -- "$current"))
}}
complete -o default -F _fairtest fairtest"""


def zsh(table: list[tuple[tuple[str, ...], list[tuple[str, str]]]]) -> str:
    return "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n" + bash(table)


def fish(table: list[tuple[tuple[str, ...], list[tuple[str, str]]]]) -> str:
    lines = []
    for path, found in table:
        when = " and ".join(f"__fish_seen_subcommand_from {word}" for word in path) or "__fish_use_subcommand"
        for name, told in found:
            what = f"-l {name[2:]}" if name.startswith("--") else f"-a {name}"
            lines.append(f"complete -c fairtest -n {shlex.quote(when)} {what} -d {shlex.quote(told)}")
    return "\n".join(lines)


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
