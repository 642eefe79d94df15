"""docs/settings.md from the schemas: defaults, rules, presets and example commands; the prose is the page's own.

python tools/settings_page.py [--check | --write]

Prints the page, says whether docs/settings.md is it (exit code 1 if not), or writes it. It has a section for every
setting and every option that may be given without `options.`, and a table of each method's options. What is between
a section's heading and its list is written by hand and kept; a new section begins with the sentence of its field.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable
from dataclasses import Field
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from epymarl_fairtest.core.shipped import shipped
from epymarl_fairtest.settings import FIELDS, fields_of, flat_names, presets
from epymarl_fairtest.strategies import STRATEGIES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
OWN_OPTION = ("preset", "method", "budget", "seed", "out")  # those of `fairtest run` beside --set
CHOICES: dict[str, Callable[[], list[str]]] = {  # their rule is text; these are checked by name
    "preset": presets,
    "method": lambda: list(STRATEGIES),
}
SHOWN: dict[str, Any] = {
    "preset": "paper", "method": "random", "allocation": "prey_distance", "agents": [1, 2], "theta": 0.7,
    "budget": 5000,
    "accounting": "paper", "execution": "softmax", "epsilon": 0.1, "rounds": 2, "generations": 5, "select_ratio": 0.05,
    "candidates": "random", "genetic_share": 0.2, "screen": 1,
    "crossover_ratio": 1.0, "prioritise": False, "fill": "fronts", "fitness": "f1,f3", "f3_temperature": 1.0,
    "parents": "uniform", "tournament": 4, "buckets": 20, "d": 0.5, "workers": 2, "engine": "lockstep",
    "random_team": 50, "replay": "all", "explain": 20, "natural_episodes": 1000,
    "seed": 7, "training_pool": 1000, "coverage_bins": 8,
    "welfare": "gini", "repair": True, "curve_episodes": 200, "curve_keep": "all",
    "distinct_distance": 0.2, "report": False, "progress": False, "out": "runs/first",
}  # fmt: skip
EXAMPLES: dict[str, dict[str, Any]] = {name: {name: value} for name, value in SHOWN.items()} | {
    "options": {"method": "gmt", "options.cycle": 25},  # these need others beside them
    "index": {"index": "gini", "theta": 0.6},
    "quantile": {"theta": "auto", "quantile": 0.1, "budget": 5000},
    "calibration_episodes": {"theta": "auto", "calibration_episodes": 500, "budget": 5000},
    "temperature": {"execution": "softmax", "temperature": 0.2},
    "pool": {"pool": 500, "budget": 5000},
    "offspring": {"offspring": 50, "budget": 2500},
    "predictor_episodes": {"predictor_episodes": 500, "budget": 5000},
    "batch": {"method": "random", "batch": 128},
    "welfare_weight": {"welfare": "gini", "welfare_weight": 0.8},
}
STOCK_TAG = "gymma with fairtest=True env_args.key=pz-mpe-simple-tag-v3 env_args.time_limit=25"
ENVIRONMENTS = {  # on EPyMARL, on PyMARLzoo+
    "allocation": (f"{STOCK_TAG} env_args.pretrained_wrapper=PretrainedTag", "fairtest_pp with fairtest=True")
}
WITHOUT = "may be given without `options.`"
OPTIONS = """\
## Options of the methods

An option belongs to one method: `fairtest_args.options.NAME=VALUE` in a host, `--set options.NAME=VALUE` elsewhere. One
that may be given without `options.` has a section of its own above. Given that way, it is checked but not used by the
methods that do not have it, so that one set of values serves several methods."""


def flat_options() -> dict[str, dict[str, Field[Any]]]:
    """Options that may be given without `options.`: name -> method -> field; those of the default method first."""
    default = values_of("fairtest.yaml")["method"]
    found: dict[str, dict[str, Field[Any]]] = {}
    for method in sorted(STRATEGIES, key=lambda name: name != default):
        schema = STRATEGIES[method].options
        for name in fields_of(schema):
            if name in flat_names(schema):
                found.setdefault(name, {})[method] = fields_of(schema)[name]
    return found


def as_yaml(value: Any) -> str:
    """A value as config/fairtest.yaml writes it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(str, value))}]"
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("\n...")


def values_of(name: str) -> dict[str, Any]:
    return yaml.safe_load((shipped("config") / name).read_text(encoding="utf-8")) or {}


def commands(name: str) -> list[str]:
    shown = EXAMPLES[name]
    given = " ".join(f"fairtest_args.{key}={value}" for key, value in shown.items())  # sacred reads Python
    epymarl, zoo = ENVIRONMENTS.get(name, ("fairtest_lbf with fairtest=True",) * 2)
    given = given.replace(", ", ",")  # a list is one word
    words = [
        f"--{k} {v}" if k in OWN_OPTION else f"--set {k}={as_yaml(v).replace(', ', ',')}" for k, v in shown.items()
    ]
    out = [] if "out" in shown else ["--out runs/1"]
    return [
        f"python src/main.py --config=qmix --env-config={epymarl} {given}",
        f"fairtest launch -- pymarlzooplus.main --config=qmix --env-config={zoo} {given}",
        " ".join(["fairtest run --policy RUN/policy", *out, *words]),
    ]


def section(name: str, default: Any, allowed: str, owners: str, prose: str) -> str:
    changed = {preset: values_of(f"presets/{preset}.yaml") for preset in presets()}
    changes = [f"`{preset}` {as_yaml(values[name])}" for preset, values in changed.items() if name in values]
    facts = [
        f"- Default: `{as_yaml(default)}`",
        f"- Allowed: {allowed}",
        f"- Presets: {', '.join(changes) or 'none change it'}",
        *([f"- Option of: {owners}; it {WITHOUT}"] if owners else []),
    ]
    return "\n".join([f"## `{name}`", "", prose, "", *facts, "", "```sh", *commands(name), "```"])


def of_setting(name: str, prose: str) -> str:
    rule = FIELDS[name].metadata["rule"]
    allowed = ", ".join(f"`{choice}`" for choice in CHOICES[name]()) if name in CHOICES else rule.allowed
    return section(name, values_of("fairtest.yaml")[name], allowed, "", prose or f"{FIELDS[name].metadata['doc']}.")


def of_option(name: str, owners: dict[str, Field[Any]], prose: str) -> str:
    """The section of an option that may be given without `options.`; its facts are those of its first method."""
    first, *_ = owners.values()
    named = ", ".join(f"`{method}`" for method in owners)
    return section(name, first.default, first.metadata["rule"].allowed, named, prose or f"{first.metadata['doc']}.")


def table(method: str) -> str:
    """The options of a method, as `fairtest_args.options.NAME`."""
    fields = fields_of(STRATEGIES[method].options)
    head = [f"### `{method}`", ""]
    if not fields:
        return "\n".join([*head, "It has none."])
    rows = [
        f"| `{name}` | `{as_yaml(field.default)}` | {field.metadata['rule'].allowed} | {field.metadata['doc']}"
        + (f"; {WITHOUT} |" if field.metadata["flat"] else " |")
        for name, field in fields.items()
    ]
    return "\n".join([*head, "| option | default | allowed | meaning |", "|---|---|---|---|", *rows])


def page(now: str) -> str:
    """The page anew, with the beginning and the prose that it has now."""
    first, *rest = re.split(r"^## `(\w+)`\n", now, flags=re.MULTILINE)
    written = {
        name: body.partition("\n- Default:")[0].strip() for name, body in zip(rest[::2], rest[1::2], strict=True)
    }
    settings = [of_setting(name, written.get(name, "")) for name in FIELDS]
    options = [of_option(name, owners, written.get(name, "")) for name, owners in flat_options().items()]
    tables = [table(method) for method in STRATEGIES]
    return "\n\n".join([first.rstrip(), *settings, *options, OPTIONS, *tables]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="exit code 1 if docs/settings.md differs")
    what.add_argument("--write", action="store_true", help="write docs/settings.md")
    given = parser.parse_args()
    now = PAGE.read_text(encoding="utf-8")
    new = page(now)
    if given.check:
        old, ours = now.splitlines(), new.splitlines()
        print(*difflib.unified_diff(old, ours, "docs/settings.md", "the schema", lineterm=""), sep="\n", end="")
        return int(now != new)
    if given.write:
        PAGE.write_text(new, encoding="utf-8")
    else:
        print(new, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
