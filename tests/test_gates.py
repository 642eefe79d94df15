"""The compiled gates of a GRU against torch's own: the same bits, for every float there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support import random_policy, record_of

from epymarl_fairtest.team import gates
from epymarl_fairtest.team.contract import CHUNK

ODD = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-38, 9.01, 9.02, 1e30, -np.inf, np.inf, np.nan], np.float32)


def test_torch_gives_what_is_not_in_doubt() -> None:
    if not gates.agrees():
        pytest.skip("torch computes tanh in another way on this machine: its own gates are used")
    assert gates.disagreeing(ODD) == 0


def test_little_is_in_doubt() -> None:
    numbers = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    ours, doubt = np.empty_like(numbers), np.zeros(len(numbers), np.bool_)
    gates.tanh(numbers, ours, doubt)
    assert doubt.mean() < 0.02
    np.testing.assert_allclose(ours, np.tanh(numbers.astype(np.float64)), rtol=2e-7)


def test_what_is_no_number_is_in_doubt() -> None:
    doubt = np.zeros(1, np.bool_)
    gates.tanh(np.array([np.nan], np.float32), np.empty(1, np.float32), doubt)
    assert doubt.all()


@pytest.mark.slow  # every float there is, twice 2^31 of them
def test_no_float_has_another_tanh() -> None:
    if not gates.agrees():
        pytest.skip("torch computes tanh in another way on this machine: its own gates are used")
    step, infinite = 1 << 22, 0x7F800000
    for first in range(0, infinite, step):
        numbers = np.arange(first, first + step, dtype=np.uint32).view(np.float32)
        assert gates.disagreeing(numbers) == gates.disagreeing(-numbers) == 0


@pytest.mark.parametrize("size", [44, 128])
def test_a_network_says_the_same_where_torch_does_not_agree(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = random_policy(record_of("spread", "gru", hidden_dim=size))
    rng, last = np.random.default_rng(0), np.zeros((CHUNK, 3), np.int16)
    hidden = rng.normal(size=(CHUNK, 3, size)).astype(np.float32)
    compiled = policy.seats(hidden)
    monkeypatch.setattr(gates, "agrees", lambda: False)
    plain = random_policy(record_of("spread", "gru", hidden_dim=size)).seats(hidden)
    assert compiled is not None
    assert plain is not None
    for _ in range(3):
        seen = rng.normal(size=(CHUNK, 3, policy.obs_size)).astype(np.float32)
        compiled.inputs[:, :, : policy.obs_size] = plain.inputs[:, :, : policy.obs_size] = seen
        assert compiled.ask(last).tobytes() == plain.ask(last).tobytes()
        assert compiled.hidden.tobytes() == plain.hidden.tobytes()


def test_another_tanh_of_torch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that is off by a unit in the last place, now and then."""

    def rougher(numbers: Any) -> Any:
        other = exact(numbers)
        other[::1000] = torch.nextafter(other[::1000], torch.tensor(0.0))
        return other

    exact = torch.tanh
    monkeypatch.setattr(torch, "tanh", rougher)
    assert not gates.agrees.__wrapped__()
