"""The table of repairs in docs/repairing.md, from docs/studies/repair/teams.csv: a row per team, arm and seed.

python tools/repair_page.py [--take FOLDER ...] [--check | --write]

`--take` first adds the seeds of finished repairs, each FOLDER named like its team (repairs/lbf-qmix); a seed that is
there already is replaced. Prints the table, says whether the page holds it (exit code 1 if not), or writes it between
`<!-- repair -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from epymarl_fairtest.repair.document import read_repair

PAGE = Path(__file__).resolve().parents[1] / "docs" / "repairing.md"
DATA = PAGE.parent / "studies" / "repair" / "teams.csv"
PLACE = re.compile(r"(<!-- repair -->\n).*?(<!-- end -->)", re.DOTALL)
TEAMS = ("lbf-qmix", "lbf-iql", "mpe-qmix", "mpe-iql", "pp-qmix", "pp-iql")
WHOLE = ("steps", "share", "max_loss", "theta", "index", "fairtest")  # of the document
ENTRY = (
    "seed", "weight", "verdict", "rate", "low", "high", "executions", "return", "worst_off", "best_off", "undefined",
    "return_change", "return_change_low", "return_change_high", "worst_off_change", "formerly_fair", "newly_unfair",
    "newly_unfair_beyond_control", "beyond_control_high", "training_cpu_seconds", "seed_cpu_seconds",
)  # fmt: skip
COLUMNS = ("team", "arm", *ENTRY, "welfare", *WHOLE)
HEAD = (
    "team", "seeds", "before", "control", "repaired", "divided by", "return", "its 95% end, worst seed", "worst-off",
    "newly unfair beyond control", "CPU s a seed", "verdicts",
)  # fmt: skip
Row = dict[str, Any]


def rows_of(folder: Path) -> list[Row]:
    """Of one repair: the team before, and control and repaired seed by seed."""
    document = read_repair(folder)
    whole = {name: document[name] for name in WHOLE} | {"team": folder.name, "welfare": document["welfare"]["name"]}
    arms = {"before": [document["before"]], "control": document["control"], "repaired": document["repaired"]}
    return [
        whole | {"arm": arm} | {name: entry.get(name, "") for name in ENTRY}
        for arm, entries in arms.items()
        for entry in entries
    ]


def key(row: Row) -> tuple[int, str, str, int]:
    known = TEAMS.index(row["team"]) if row["team"] in TEAMS else len(TEAMS)
    return known, row["team"], row["arm"], int(row["seed"] or 0)


def read() -> list[Row]:
    if not DATA.is_file():
        return []
    with open(DATA, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def take(folders: list[Path]) -> None:
    rows = {key(row): row for row in [*read(), *(row for folder in folders for row in rows_of(folder))]}
    with open(DATA, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[place] for place in sorted(rows))


def table(rows: list[Row]) -> str:
    """A line per team; means over its seeds, with the lowest and the highest."""
    lines = [HEAD, ("---",) * len(HEAD)]
    for team in dict.fromkeys(row["team"] for row in sorted(rows, key=key)):
        arms = {
            arm: [row for row in rows if (row["team"], row["arm"]) == (team, arm)] for arm in ("control", "repaired")
        }
        (before,) = (row for row in rows if (row["team"], row["arm"]) == (team, "before"))
        lines.append(line(team, before, **arms))
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def line(team: str, before: Row, control: list[Row], repaired: list[Row]) -> tuple[str, ...]:
    verdicts = [row["verdict"] for row in repaired]
    counted = (
        f"{verdicts.count(one)} {one}" for one in ("repaired", "levelled down", "not repaired") if one in verdicts
    )
    rate = mean(numbers(repaired, "rate"))
    return (
        team,
        str(len(repaired)),
        f"{float(before['rate']):.2%}",
        spread(numbers(control, "rate"), ".2%"),
        spread(numbers(repaired, "rate"), ".2%"),
        f"{float(before['rate']) / rate:.2f}" if rate else "-",
        spread(numbers(repaired, "return_change"), "+.1%"),
        f"{min(numbers(repaired, 'return_change_high')):+.1%}",
        spread(numbers(repaired, "worst_off_change"), "+.1%"),
        spread(numbers(repaired, "newly_unfair_beyond_control"), "+.2%"),
        f"{mean(numbers(repaired, 'seed_cpu_seconds')):.0f}",
        ", ".join(counted),
    )


def numbers(rows: list[Row], name: str) -> list[float]:
    return [float(row[name]) for row in rows if row[name] not in ("", None)] or [float("nan")]


def spread(values: list[float], form: str) -> str:
    if len(values) == 1:
        return format(values[0], form)
    return f"{mean(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--take", type=Path, nargs="+", default=[], metavar="FOLDER")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.take:
        take(args.take)
    made, page = table(read()), PAGE.read_text(encoding="utf-8")
    new = PLACE.sub(lambda found: found[1] + made + found[2], page)
    print(made, end="")
    if args.write:
        PAGE.write_text(new, encoding="utf-8")
    return int(args.check and new != page)


if __name__ == "__main__":
    raise SystemExit(main())
