"""What drawing needs beside numpy, and what to say where it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from epymarl_fairtest.core.errors import FairTestError

PACKAGES = {"matplotlib": "matplotlib", "PIL": "pillow", "jinja2": "jinja2"}  # module -> what pip calls it


@contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Around the imports of what draws."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = PACKAGES.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        raise FairTestError(f"{what} needs {package}, which is not installed here: pip install {package}") from error
