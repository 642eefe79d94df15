"""Code of ours inside a host: global random states are given back, and our errors become sacred's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sacred.utils import SacredError

from epymarl_fairtest.core.errors import FairTestError
from epymarl_fairtest.host.random_states import given_back


class PluginError(SacredError):
    """A FairTestError as sacred prints it: the message alone."""

    def __init__(self, message: str) -> None:
        super().__init__(message, print_traceback=False)  # type: ignore[no-untyped-call]


@contextmanager
def aside() -> Iterator[None]:
    """Give the global random states back, and turn our errors into sacred's."""
    with given_back():
        try:
            yield
        except FairTestError as error:
            raise PluginError(str(error)) from None
