"""The compiled gates of a GRU against torch's own: the same bits, for every float there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

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


def by_torch(of_input: torch.Tensor, of_memory: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """What torch.gru_cell does after its products."""
    (reset_x, update_x, new_x), (reset_h, update_h, new_h) = of_input.chunk(3, 1), of_memory.clone().chunk(3, 1)
    reset, update = reset_h.add_(reset_x).sigmoid_(), update_h.add_(update_x).sigmoid_()
    new = torch.add(new_x, new_h.mul_(reset)).tanh_()
    return memory.clone().sub_(new).mul_(update).add_(new)


@pytest.mark.parametrize("ours", [True, False], ids=["ours where it is torch's", "torch's"])
@pytest.mark.parametrize("rows", [8, 3 * CHUNK])
@pytest.mark.parametrize("size", [44, 64, 128])
def test_gates_are_torchs_whoever_computes_tanh(
    size: int, rows: int, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_input, of_memory, memory = (torch.randn(3 * CHUNK, count) for count in (3 * size, 3 * size, size))
    wanted = by_torch(of_input, of_memory, memory)[:rows]
    if not ours:
        monkeypatch.setattr(gates, "agrees", lambda: False)
    sums, (new_x, new_h) = (of_memory + of_input)[:, : 2 * size], (of[:, 2 * size :] for of in (of_input, of_memory))
    given = [numbers[:rows].contiguous().numpy() for numbers in (sums, new_x, new_h, memory)]
    gates.Gates(3 * CHUNK, size).closing(*given)()
    assert given[3].tobytes() == wanted.numpy().tobytes()


@pytest.mark.parametrize("size", [44, 128])
def test_gates_with_a_tanh_of_ours_are_as_good(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where torch has another one, and ours is not used."""
    sums, new_x, new_h, memory = (torch.randn(CHUNK, count) for count in (2 * size, size, size, size))
    reset, update = sums.double().sigmoid().chunk(2, 1)
    new = torch.tanh(new_x + new_h * reset)
    wanted = (memory - new) * update + new
    monkeypatch.setattr(gates, "agrees", lambda: True)
    gates.Gates(CHUNK, size).closing(*(numbers.numpy() for numbers in (sums, new_x, new_h, memory)))()
    np.testing.assert_allclose(memory.numpy(), wanted.numpy(), atol=1e-6)


def test_another_tanh_of_torch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that is off by a unit in the last place, now and then."""

    def rougher(numbers: Any) -> Any:
        other = exact(numbers)
        other[::1000] = torch.nextafter(other[::1000], torch.tensor(0.0))
        return other

    exact = torch.tanh
    monkeypatch.setattr(torch, "tanh", rougher)
    assert not gates.agrees.__wrapped__()
