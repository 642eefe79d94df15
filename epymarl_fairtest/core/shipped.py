"""Where the files that ship with FairTest are: in a clone beside the package, in a wheel inside it."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def shipped(name: str) -> Path:
    """The folder `name` (config, src_patches or policies) of this installation."""
    for root in (PACKAGE / "shipped", PACKAGE.parent):
        if (root / name).is_dir():
            return root / name
    raise FileNotFoundError(f"FairTest's own folder {name!r} is missing; install the package again")


def team_folder(given: Path) -> Path:
    """The folder of a team: as given, or where none is there, the shipped team of that name (`policies/NAME`, NAME)."""
    if given.exists() or given.parent not in (Path(), Path("policies")):
        return given
    own = shipped("policies") / given.name
    return own if own.is_dir() else given


def presets() -> list[str]:
    """The named sets of settings."""
    return sorted(path.stem for path in (shipped("config") / "presets").glob("*.yaml"))


def environments() -> list[str]:
    """Our environments, as a host's --env-config names them."""
    return sorted(path.stem for path in (shipped("config") / "envs").glob("*.yaml"))
