"""The global random states that hosts draw from: set for a training of ours, and given back to whoever had them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def given_back() -> Iterator[None]:
    """What happens in here, with one thread, leaves no trace in the global random states."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        torch.set_num_threads(states[3])


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
