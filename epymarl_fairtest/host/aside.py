"""Code of ours inside a host: global random states are given back, and our errors become sacred's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from sacred.utils import SacredError

from epymarl_fairtest.core.errors import FairTestError


class PluginError(SacredError):
    """A FairTestError as sacred prints it: the message alone."""

    def __init__(self, message: str) -> None:
        super().__init__(message, print_traceback=False)  # type: ignore[no-untyped-call]


@contextmanager
def aside() -> Iterator[None]:
    """Give the global random states back, and turn our errors into sacred's."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    except FairTestError as error:
        raise PluginError(str(error)) from None
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_num_threads(states[3])
