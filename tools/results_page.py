"""The tables of docs/results.md and docs/tables.md: what our studies found beside what the paper prints.

python tools/results_page.py [--check | --write | --draw] [--take FOLDER ...]

Prints the tables from docs/studies/NAME.csv, says whether the pages hold them (exit code 1 if not), writes them into
them, each between `<!-- NAME -->` and `<!-- end -->` (`<!-- NAME answer -->`: the short one), or draws their figures.
The prose around them is written by hand. `--take` first
takes over the rows of finished studies, results.csv to docs/studies/ and growth.csv to docs/studies/growth/, under the
names of their folders: a study may be run seed by seed. The paper's numbers are in italics.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from epymarl_fairtest.core.statistics import compare, mean_of
from epymarl_fairtest.strategies import STRATEGIES
from epymarl_fairtest.study.kinds import KINDS
from epymarl_fairtest.study.plan import OURS, in_front, labels_of
from epymarl_fairtest.study.rows import ALSO, METRICS, Results

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = (DOCS / "results.md", DOCS / "tables.md")
DATA = DOCS / "studies"
PLACE = re.compile(r"(<!-- (rq\w+(?:-\w+)*)( answer)? -->\n).*?(<!-- end -->)", re.DOTALL)
TEAMS = (
    "mpe-iql", "mpe-qmix", "lbf-iql", "lbf-qmix", "pp-iql", "pp-qmix",
    "mpe-mappo", "lbf-mappo", "pp-mappo", "rware-ippo",
)  # fmt: skip
# study -> metric -> team -> variant -> the paper's mean
PAPER: dict[str, dict[str, dict[str, dict[str, float]]]] = {
    "rq1": {
        "failures": {
            "mpe-iql": {"random": 84.3, "gmt": 546.4, "mastest": 1.0, "starla": 38.5, "fairtest": 1126.5},
            "mpe-qmix": {"random": 96.2, "gmt": 736.0, "mastest": 34.8, "starla": 44.3, "fairtest": 1055.1},
            "lbf-iql": {"random": 4701.6, "gmt": 6575.6, "mastest": 4322.6, "starla": 2304.0, "fairtest": 20592.0},
            "lbf-qmix": {"random": 4707.2, "gmt": 6369.3, "mastest": 4040.2, "starla": 1555.3, "fairtest": 19402.6},
            "pp-iql": {"random": 883.4, "gmt": 498.6, "mastest": 49.5, "starla": 202.4, "fairtest": 4523.4},
            "pp-qmix": {"random": 433.4, "gmt": 272.9, "mastest": 47.0, "starla": 238.3, "fairtest": 1930.5},
        },
        "coverage": {
            "mpe-iql": {"random": 0.113, "gmt": 0.386, "mastest": 0.002, "starla": 0.055, "fairtest": 0.391},
            "mpe-qmix": {"random": 0.131, "gmt": 0.531, "mastest": 0.009, "starla": 0.067, "fairtest": 0.441},
            "lbf-iql": {"random": 0.888, "gmt": 0.991, "mastest": 0.064, "starla": 0.779, "fairtest": 0.985},
            "lbf-qmix": {"random": 0.861, "gmt": 0.986, "mastest": 0.065, "starla": 0.651, "fairtest": 0.967},
            "pp-iql": {"random": 0.57, "gmt": 0.416, "mastest": 0.006, "starla": 0.193, "fairtest": 0.889},
            "pp-qmix": {"random": 0.454, "gmt": 0.338, "mastest": 0.007, "starla": 0.307, "fairtest": 0.821},
        },
    },
    "rq2": {
        "failures": {
            "mpe-iql": {"0.05": 1615.9, "0.10": 1352.5, "0.15": 1252.6, "0.20": 1126.5},
            "mpe-qmix": {"0.05": 1429.5, "0.10": 1252.8, "0.15": 1158.7, "0.20": 1055.1},
            "lbf-iql": {"0.05": 19443.3, "0.10": 19820.9, "0.15": 20285.5, "0.20": 20592.0},
            "lbf-qmix": {"0.05": 18373.1, "0.10": 18675.0, "0.15": 19087.2, "0.20": 19402.6},
            "pp-iql": {"0.05": 4477.9, "0.10": 4426.1, "0.15": 4487.1, "0.20": 4523.4},
            "pp-qmix": {"0.05": 1798.7, "0.10": 1827.4, "0.15": 1882.6, "0.20": 1930.5},
        },
    },
    "rq3a": {
        "cv_auc_abstract": {
            "pp-iql": {"predictor": 0.882},
            "pp-qmix": {"predictor": 0.852},
        },
        "cv_auc_full": {
            "pp-iql": {"predictor": 0.997},
            "pp-qmix": {"predictor": 0.955},
        },
    },
    "rq3b": {
        "failures": {
            "pp-iql": {"f0": 907.9, "f1": 942.3, "f2": 1018.2, "f3": 951.4, "all": 1046.1},
            "pp-qmix": {"f0": 441.1, "f1": 459.2, "f2": 446.3, "f3": 454.5, "all": 469.1},
        },
    },
    "rq3c": {
        "failures": {
            "pp-iql": {"off": 1046.1, "on": 4523.4},
            "pp-qmix": {"off": 469.1, "on": 1930.5},
        },
        "coverage": {
            "pp-iql": {"off": 0.495, "on": 0.889},
            "pp-qmix": {"off": 0.379, "on": 0.821},
        },
    },
}
FIGURES = {  # study -> what is drawn of it, as docs/images/results-STUDY.png
    "rq1-paper": "failures", "rq1-strict": "distinct_failures", "rq1-own": "distinct_failures", "rq2-paper": "failures",
    "rq3b-paper": "failures", "rq3c-paper": "failures", "rq1-1000": "distinct_failures",
    "rq1-18000": "distinct_failures",
}  # fmt: skip
FINE = ("coverage", "lowest_index", "natural_rate", "cv_auc_abstract", "cv_auc_full")  # three digits
RANKED = {**METRICS, **ALSO, "cpu_seconds": "CPU seconds"}
Rows = list[dict[str, str]]


class Published:
    """The rows of one study."""

    def __init__(self, path: Path) -> None:
        self.rows = read(path)
        self.kind = self.rows[0]["study"]
        self.paper = PAPER[self.kind] if self.rows[0]["accounting"] == "paper" else {}  # it knows no other
        there = {row["policy"] for row in self.rows}
        self.teams = [team for team in TEAMS if team in there]
        self.variants = in_order(dict.fromkeys(row["variant"] for row in self.rows))
        self.labels = [labels_of(self.kind, self.variants).get(variant, variant) for variant in self.variants]

    def values(self, team: str, variant: str, metric: str) -> list[float]:
        chosen = (row for row in self.rows if (row["policy"], row["variant"]) == (team, variant))
        return [float(row[metric]) for row in chosen if row[metric]]

    def cell(self, team: str, variant: str, metric: str) -> str:
        """Mean and standard deviation of our runs, and the paper's mean where it has one."""
        value = mean_of(self.values(team, variant, metric))
        if value.mean is None:
            return "–"
        digits = 3 if metric in FINE else 0
        told = f"{value.mean:,.{digits}f}" + (f" ± {value.std:,.{digits}f}" if value.std is not None else "")
        paper = self.paper.get(metric, {}).get(team, {}).get(variant)
        return told if paper is None else f"{told} *({paper:,.{digits}f})*"

    @property
    def ranked(self) -> bool:
        """Of all methods with everything that is counted today? Earlier studies lack some of it."""
        return self.kind == "rq1" and "distinct_area" in self.rows[0]

    def charged(self) -> str:
        return f"{int(self.rows[0]['budget']):,} episodes, all charged"

    def seeds(self) -> str:
        """How many runs each method has on each team."""
        counts = [len(self.values(team, v, "failures")) for team in self.teams for v in self.variants]
        least, most = min(counts), max(counts)
        return f"{most} seeds each" if least == most else f"{least} to {most} seeds: not all runs are there"

    def results(self, growth: Path) -> Results:
        """What the curves are drawn from."""
        with open(growth, newline="") as file:
            points = list(csv.DictReader(file))
        names = ("distinct_area", "tenth_distinct_failure")
        rows = [{**row, **{name: float(row[name]) if row[name] else None for name in names}} for row in self.rows]
        return Results(rows, self.teams, self.variants, {}, KINDS[self.kind].reference, points)

    def cost(self) -> str:
        hours = sum(float(row["cpu_seconds"]) for row in self.rows) / 3600
        return f"{len(self.rows)} runs, {hours:.2f} CPU hours."


def in_order(variants: Iterable[str]) -> list[str]:
    """Methods as they are registered, each before its own variants; where no methods are compared, as they came."""
    methods = list(STRATEGIES)
    known = {one: methods.index(name) for one in variants if (name := one.partition(":")[0]) in STRATEGIES}
    return sorted(variants, key=lambda one: (known.get(one, -1), one if one in known else ""))


def table(header: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    rows = [list(header), *(list(row) for row in body)]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def metrics(published: Published) -> str:
    """A table per metric: a row per team, a column per variant."""
    head = ["", *published.labels]
    parts = []
    for metric, name in METRICS.items():
        if metric not in published.rows[0]:  # studies from before it was counted
            continue
        body = ([team, *(published.cell(team, v, metric) for v in published.variants)] for team in published.teams)
        parts.append(f"{name}:\n\n{table(head, body)}")
    return "\n\n".join(parts)


def against(published: Published) -> str:
    """FairTest's failures as a multiple of the best other method's and of each one's, with p and A12."""
    others = [name for name in published.variants if name != "fairtest"]
    body = []
    for team in published.teams:
        runs = {name: published.values(team, name, "failures") for name in published.variants}
        means = {name: mean_of(values).mean or 0.0 for name, values in runs.items()}
        paper = published.paper.get("failures", {}).get(team, {})
        row = [team, ratio(means, others, paper)]
        for name in others:
            test = compare(runs["fairtest"], runs[name])
            told = "" if test is None else f", {test.p:.0e}{test.stars}, {test.a12:.2f}{test.letter}"
            row.append(ratio(means, [name], paper) + told)
        body.append(row)
    head = ["FairTest against", "the best of them", *(label for label in published.labels if label != "FairTest")]
    return f"Ratio of the mean failures, p, A12:\n\n{table(head, body)}"


def ratio(means: dict[str, float], others: list[str], paper: dict[str, float]) -> str:
    """FairTest's mean as a multiple of the largest of the others', ours and the paper's."""
    told = []
    for side in (means, paper):
        largest = max((side.get(name, 0.0) for name in others), default=0.0)
        told.append(f"{side['fairtest'] / largest:,.2f}" if largest else "")
    return (told[0] or "–") + (f" *({told[1]})*" if told[1] else "")


# --- all methods, ranked ------------------------------------------------------------------------------


def ranking(published: Published) -> str:
    """Who is best where, our searches against each other method, and a table per metric with a row per method."""
    parts = [f"{published.charged()}; {published.seeds()}.", best_of(published)]
    parts += [head_to_head(published, variant) for variant in OURS if variant in published.variants]
    if "scout" in published.variants:
        parts.append(worst_runs(published, "scout"))
    for metric, name in RANKED.items():
        body = []
        for variant, label in zip(published.variants, published.labels, strict=True):
            body.append([label, *(published.cell(team, variant, metric) for team in published.teams)])
        parts.append(f"{name}:\n\n{table(['', *published.teams], body)}")
    return "\n\n".join(parts)


def answer(published: Published) -> str:
    """Distinct failures of our searches, of the best other method and of random executions, on one screen."""
    ours = in_front("rq1", published.variants)
    labels = dict(zip(published.variants, published.labels, strict=True))
    others = [name for name in published.variants if name not in ours]
    body: dict[str, list[str]] = {
        name: [] for name in (*(labels[name] for name in ours), "best other method", "Random")
    }
    for team in published.teams:
        runs = {name: published.values(team, name, "distinct_failures") for name in published.variants}
        best = max(others, key=lambda name: mean_of(runs[name]).mean or 0.0)
        for name in ours:
            times = versus(runs, name, best).split(" ")[0]
            body[labels[name]].append(f"{published.cell(team, name, 'distinct_failures')} ({times} x)")
        body["best other method"].append(f"{published.cell(team, best, 'distinct_failures')} ({labels[best]})")
        body["Random"].append(published.cell(team, "random", "distinct_failures"))
    rows = ([name, *cells] for name, cells in body.items())
    said = f"{published.charged()}; {published.seeds()}. In brackets: as a multiple of the best other method."
    return f"{said}\n\n{table(['distinct failures', *published.teams], rows)}"


def best_of(published: Published) -> str:
    """The best method and the runner-up, per metric and team."""
    labels = dict(zip(published.variants, published.labels, strict=True))
    body = []
    for metric, name in METRICS.items():
        row = [name]
        for team in published.teams:
            runs = {variant: published.values(team, variant, metric) for variant in published.variants}
            means = {variant: mean_of(values).mean for variant, values in runs.items()}
            known = sorted((v for v in runs if means[v] is not None), key=lambda v: -(means[v] or 0.0))
            row.append("–" if len(known) < 2 else f"**{labels[known[0]]}**, {versus(runs, known[0], known[1], labels)}")
        body.append(row)
    return f"The best, and how many times the runner-up it is (p, A12):\n\n{table(['', *published.teams], body)}"


def versus(runs: dict[str, list[float]], one: str, other: str, labels: dict[str, str] | None = None) -> str:
    """The ratio of two means, p and A12."""
    test, (a, b) = compare(runs[one], runs[other]), (mean_of(runs[v]).mean or 0.0 for v in (one, other))
    over = f" x {labels[other]}" if labels else ""
    told = f" ({test.p:.0e}{test.stars}, {test.a12:.2f}{test.letter})" if test else ""
    return (f"{a / b:,.2f}" if b else "more than 0" if a else "–") + over + told.replace("*", r"\*")


def head_to_head(published: Published, variant: str) -> str:
    """A method's distinct failures as a multiple of each other one's."""
    body = []
    label = labels_of("rq1", published.variants)[variant]
    for other, name in zip(published.variants, published.labels, strict=True):
        if other == variant:
            continue
        row = [name]
        for team in published.teams:
            runs = {v: published.values(team, v, "distinct_failures") for v in (variant, other)}
            row.append(versus(runs, variant, other) if all(runs.values()) else "–")
        body.append(row)
    title = f"Distinct failures of {label} as a multiple of each other method's (p, A12):"
    return f"{title}\n\n{table(['', *published.teams], body)}"


def worst_runs(published: Published, variant: str) -> str:
    """The lowest run of a method beside the highest mean of the others."""
    body = []
    others = [name for name in published.variants if name not in in_front("rq1", published.variants)]
    for metric in ("distinct_failures", "distinct_failures_wide", "coverage"):
        row, digits = [METRICS[metric]], 3 if metric in FINE else 0
        for team in published.teams:
            means = [mean_of(published.values(team, name, metric)).mean or 0.0 for name in others]
            mine = published.values(team, variant, metric)
            row.append(f"{min(mine):,.{digits}f} / {max(means):,.{digits}f}" if mine and means else "–")
        body.append(row)
    label = labels_of("rq1", published.variants)[variant]
    return (
        f"The lowest run of {label} / the highest mean of the other methods:\n\n{table(['', *published.teams], body)}"
    )


def per_charge(published: Published) -> str:
    """Failures per charged episode: where fewer candidates are kept, fewer episodes are charged as the paper counts."""
    body = []
    for team in published.teams:
        shares = []
        for variant in published.variants:
            failures, charged = (
                mean_of(published.values(team, variant, m)).mean for m in ("failures", "charged_paper")
            )
            shares.append(f"{failures / charged:.3f}" if failures is not None and charged else "–")
        body.append([team, *shares])
    return f"Failures per charged episode:\n\n{table(['', *published.labels], body)}"


def predictor(published: Published) -> str:
    body = (
        [t, *(published.cell(t, "predictor", f"cv_auc_{name}") for name in ("abstract", "full"))]
        for t in published.teams
    )
    return table(["AUC", "abstract states", "with fairness features"], body)


def tables(path: Path) -> str:
    published = Published(path)
    if published.kind == "rq3a":
        return f"{predictor(published)}\n\n{published.cost()}"
    if published.ranked:
        return f"{ranking(published)}\n\n{published.cost()}"
    parts = [metrics(published)]
    if published.kind == "rq1":
        parts.append(against(published))
    if published.kind == "rq2" and published.paper:
        parts.append(per_charge(published))
    return "\n\n".join([*parts, published.cost()])


def draw(name: str, metric: str) -> None:
    """The figures of the study, as the study itself draws them."""
    from epymarl_fairtest.report.study_curves import curve_figures
    from epymarl_fairtest.report.study_figures import Drawing, study_figures

    published = Published(DATA / f"{name}.csv")
    first, reference = published.rows[0], KINDS[published.kind].reference
    labels, front = labels_of(published.kind, published.variants), in_front(published.kind, published.variants)
    drawing = Drawing(published.teams, published.variants, labels, reference, front if published.ranked else ())
    values = {metric: {t: {v: published.values(t, v, metric) for v in published.variants} for t in published.teams}}
    budget = f"{int(first['budget']):,} episodes, {first['accounting']} accounting"
    with TemporaryDirectory() as folder:
        png, _ = study_figures(published.kind, drawing, values, Path(folder), budget)
        publish(png, name)
        growth = DATA / "growth" / f"{name}.csv"
        if published.ranked and growth.is_file():
            results = published.results(growth)
            curves = results.curves(), results.areas(), results.tenths()
            for path in curve_figures(drawing, *curves, Path(folder), budget):
                if path.suffix == ".png":
                    publish(path, f"{name}-{path.stem.removeprefix('rq1_')}")


def publish(png: Path, name: str) -> None:
    from PIL import Image

    with Image.open(png) as picture:  # a third of the bytes, and nobody sees it
        picture.convert("RGB").quantize(96).save(DOCS / "images" / f"results-{name}.png", optimize=True)


def take(new: Path, published: Path) -> None:
    """Publish rows: they replace those of the same runs, and those of other runs stay. By team, variant and seed."""
    rows = read(new)
    runs = {run_of(row) for row in rows}
    before = read(published) if published.is_file() else []
    kept = [row for row in before if run_of(row) not in runs]
    if kept and (kept[0].keys() != rows[0].keys() or {row.get("budget") for row in kept} != {rows[0].get("budget")}):
        raise SystemExit(
            f"{published} holds rows of another study than {new}: move it away, or name the folder otherwise."
        )
    variants = list(dict.fromkeys(row["variant"] for row in before + rows))
    order = {run: at for at, run in enumerate(itertools.product(TEAMS, variants))}
    rows = sorted(rows + kept, key=lambda row: (order[row["policy"], row["variant"]], int(row["seed"])))  # stable
    published.parent.mkdir(exist_ok=True)
    with open(published, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(path: Path) -> Rows:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def run_of(row: dict[str, str]) -> tuple[str, str, str]:
    return row["policy"], row["variant"], row["seed"]


def filled(page: str) -> str:
    def fill(place: re.Match[str]) -> str:
        path = DATA / f"{place[2]}.csv"
        return f"{place[1]}\n{answer(Published(path)) if place[3] else tables(path)}\n\n{place[4]}"

    return PLACE.sub(fill, page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="exit code 1 if the pages hold other tables")
    action.add_argument("--write", action="store_true", help="write the tables into the pages")
    action.add_argument("--draw", action="store_true", help="draw their figures")
    parser.add_argument(
        "--take", type=Path, nargs="+", default=[], metavar="FOLDER", help="finished studies to publish"
    )
    args = parser.parse_args()
    for folder in args.take:
        take(folder / "results.csv", DATA / f"{folder.name}.csv")
        if (folder / "growth.csv").is_file():
            take(folder / "growth.csv", DATA / "growth" / f"{folder.name}.csv")
    if args.check:
        other = [page.name for page in PAGES if filled(page.read_text(encoding="utf-8")) != page.read_text("utf-8")]
        for name in other:
            print(f"docs/{name} holds other tables than docs/studies/ gives: python tools/results_page.py --write")
        return int(bool(other))
    elif args.write:
        for page in PAGES:
            page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    elif args.draw:
        for name, metric in FIGURES.items():
            if (DATA / f"{name}.csv").is_file():
                draw(name, metric)
    else:
        for path in sorted(DATA.glob("*.csv")):
            print(f"## {path.stem}\n\n{tables(path)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
