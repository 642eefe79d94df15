"""The tables of repairs in docs/repairing.md and docs/results.md, and of what testers find afterwards, from the rows in
docs/studies/repair.

python tools/repair_page.py [--take FOLDER ...] [--testers STUDY ...] [--check | --write | --draw]

`--take` first adds the seeds of finished repairs, each FOLDER named like its team (repairs/lbf-qmix); a seed that is
there already is replaced. `--testers` replaces what testers find by the rows of these studies, whose teams are named
TEAM-SEED-control and TEAM-SEED-repaired. Prints the tables, says whether the pages hold them (exit code 1 if not),
writes them, between `<!-- repair -->`, `<!-- testers -->` or `<!-- repaired -->` and `<!-- end -->`, or draws a figure.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from epymarl_fairtest.repair.defaults import MAX_LOSS
from epymarl_fairtest.repair.document import read_repair

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = (DOCS / "repairing.md", DOCS / "results.md")
DATA = DOCS / "studies" / "repair" / "teams.csv"
FIGURE = DOCS / "images" / "repairs.png"
TESTERS = DATA.with_name("testers.csv")
PLACE = re.compile(r"(<!-- (repair|testers|repaired) -->\n).*?(<!-- end -->)", re.DOTALL)
TEAMS = ("lbf-qmix", "lbf-iql", "mpe-qmix", "mpe-iql", "pp-qmix", "pp-iql")
WHOLE = ("steps", "share", "max_loss", "theta", "index", "fairtest")  # of the document
ENTRY = (
    "seed", "weight", "verdict", "rate", "low", "high", "executions", "return", "worst_off", "best_off", "undefined",
    "return_change", "return_change_low", "return_change_high", "worst_off_change", "formerly_fair", "newly_unfair",
    "newly_unfair_beyond_control", "beyond_control_high", "training_cpu_seconds", "seed_cpu_seconds",
)  # fmt: skip
COLUMNS = ("team", "arm", *ENTRY, "welfare", "weights", "learner", *WHOLE)
HEAD = (
    "team", "steps", "weights", "from failing starts", "learner", "seeds", "before", "control", "repaired",
    "divided by", "return", "its 95% end, worst seed", "worst-off", "newly unfair beyond control", "CPU s a seed",
    "verdicts",
)  # fmt: skip
BRIEFLY = ("team", "steps", "seeds", "before", "control", "repaired", "divided by", "return", "worst-off", "verdicts")
TESTED = ("policy", "variant", "seed", "budget", "failures", "distinct_failures", "distinct_failures_wide",
    "distinct_starts", "coverage", "natural_rate")  # fmt: skip
Row = dict[str, Any]


def rows_of(folder: Path) -> list[Row]:
    """Of one repair: the team before, and control and repaired seed by seed."""
    document = read_repair(folder)
    welfare, whole = document["welfare"], {name: document[name] for name in WHOLE} | {"team": folder.name}
    whole |= {"welfare": welfare["name"], "weights": " ".join(f"{weight:g}" for weight in welfare["weights"])}
    whole["learner"] = " ".join(f"{name}={value}" for name, value in document["learner"].items())
    arms = {"before": [document["before"]], "control": document["control"], "repaired": document["repaired"]}
    return [
        whole | {"arm": arm} | {name: entry.get(name, "") for name in ENTRY}
        for arm, entries in arms.items()
        for entry in entries
    ]


def key(row: Row) -> tuple[Any, ...]:
    known = TEAMS.index(row["team"]) if row["team"] in TEAMS else len(TEAMS)
    return known, *recipe_of(row), row["arm"], int(row["seed"] or 0)


def recipe_of(row: Row) -> tuple[str, float, str, int, tuple[float, ...]]:
    """What was asked of which team; the recipes of a team in the order of the table."""
    weights = tuple(map(float, row["weights"].split()))
    return row["team"], -float(row["share"]), row["learner"], int(row["steps"]), weights


def read(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path: Path, columns: tuple[str, ...], rows: Iterable[Row]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def take(folders: list[Path]) -> None:
    rows = {key(row): row for row in [*read(DATA), *(row for folder in folders for row in rows_of(folder))]}
    write(DATA, COLUMNS, (rows[place] for place in sorted(rows)))


def table(rows: list[Row], columns: Sequence[str] = HEAD) -> str:
    """A line per team and recipe; means over its seeds, with the lowest and the highest."""
    lines: list[tuple[str, ...]] = [HEAD]
    for recipe in dict.fromkeys(recipe_of(row) for row in sorted(rows, key=key)):
        arms: dict[str, list[Row]] = {"before": [], "control": [], "repaired": []}
        for row in rows:
            if recipe_of(row) == recipe:
                arms[row["arm"]].append(row)
        (before,) = arms.pop("before")
        lines.append(line(before, **arms))
    places = [HEAD.index(name) for name in columns]
    return joined([tuple(cells[place] for place in places) for cells in lines])


def draw(rows: list[Row]) -> None:
    """Every repair of every team, for docs/results.md."""
    from epymarl_fairtest.report.compare_figure import drawn
    from epymarl_fairtest.report.repair import teams_figure

    known = [row | {name: float(row[name]) for name in ("rate", "return")} for row in sorted(rows, key=key)]
    teams: dict[str, list[Row]] = {}
    for row in known:
        teams.setdefault(row["team"], []).append(row)
    FIGURE.write_bytes(drawn(teams_figure(teams, MAX_LOSS), "png"))


def joined(lines: Sequence[tuple[str, ...]]) -> str:
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (lines[0], ("---",) * len(lines[0]), *lines[1:]))


def testers_table(rows: list[Row]) -> str:
    """What each method finds in control and repaired teams: a line per method, means over teams and seeds."""
    found: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in rows:
        team, _, arm = row["policy"].rsplit("-", 2)
        found.setdefault((team, row["variant"]), {}).setdefault(arm, []).append(row)
    lines: list[tuple[str, ...]] = [
        ("team", "method", "control: distinct", "repaired: distinct", "control: starts", "repaired: starts")
    ]
    for (team, method), arms in sorted(found.items()):
        cells = (
            f"{mean(numbers(arms[arm], name)):,.0f}"
            for name in ("distinct_failures", "distinct_starts")
            for arm in ("control", "repaired")
        )
        lines.append((team, method, *cells))
    return joined(lines)


def line(before: Row, control: list[Row], repaired: list[Row]) -> tuple[str, ...]:
    verdicts = [row["verdict"] for row in repaired]
    counted = (
        f"{verdicts.count(one)} {one}" for one in ("repaired", "levelled down", "not repaired") if one in verdicts
    )
    rate = mean(numbers(repaired, "rate"))
    return (
        before["team"],
        f"{int(before['steps']):,}",
        before["weights"].replace(" ", ", "),
        f"{float(before['share']):.0%}",
        before["learner"].replace(" ", ", ") or "its own",
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
    parser.add_argument("--testers", type=Path, nargs="+", default=[], metavar="STUDY")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true")
    action.add_argument("--write", action="store_true")
    action.add_argument("--draw", action="store_true")
    args = parser.parse_args()
    if args.take:
        take(args.take)
    if args.testers:
        write(TESTERS, TESTED, (row for study in args.testers for row in read(study / "results.csv")))
    if args.draw:
        draw(read(DATA))
        return 0
    rows = read(DATA)
    made = {"repair": table(rows), "testers": testers_table(read(TESTERS)), "repaired": table(rows, BRIEFLY)}
    print(*made.values(), sep="\n", end="")
    same = True
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = PLACE.sub(lambda found: found[1] + made[found[2]] + found[3], before)
        same &= after == before
        if args.write:
            page.write_text(after, encoding="utf-8")
    return int(args.check and not same)


if __name__ == "__main__":
    raise SystemExit(main())
