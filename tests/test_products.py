"""Compiled products of layers against torch's own: the same bits, or torch's own are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import llvmlite.binding
import numpy as np
import pytest
import torch
from numba.core.errors import TypingError
from support import random_policy, record_of

from epymarl_fairtest.team import products
from epymarl_fairtest.team.contract import CHUNK

SIZES = [(18, 64), (64, 64), (21, 128), (128, 384), (64, 2), (64, 5), (128, 6), (40, 9), (64, 11)]


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    """Torch is asked once for each size: here again, and nobody after us hears what it said while it was replaced."""
    products._agrees.cache_clear()
    yield
    products._agrees.cache_clear()


def layer(inputs: int, outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(inputs * outputs)
    return torch.randn(outputs, inputs, generator=generator), torch.randn(outputs, generator=generator)


def served(inputs: int, outputs: int, rows: int = 3 * CHUNK) -> products.Into:
    made = products.product(*layer(inputs, outputs), rows)
    if made is None:
        pytest.skip("torch adds up in another order on this machine: its own products are used")
    return made


@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
@pytest.mark.parametrize("rectified", [False, True])
def test_torch_gives_the_same_bits(inputs: int, outputs: int, rectified: bool) -> None:
    weight, bias = layer(inputs, outputs)
    x = torch.randn(3 * CHUNK, inputs, generator=torch.Generator().manual_seed(1)) * 100
    x[::2].relu_()
    out = torch.full((3 * CHUNK, outputs), torch.nan)
    served(inputs, outputs)(x, out, rectified)()
    theirs = torch.addmm(bias, x, weight.t())
    assert out.numpy().tobytes() == (theirs.relu() if rectified else theirs).numpy().tobytes()


@pytest.mark.parametrize("rectified", [False, True])
@pytest.mark.parametrize("outputs", [5, 64])
def test_what_is_no_number_stays_none(outputs: int, rectified: bool) -> None:
    x, out = torch.zeros(CHUNK, 64), torch.zeros(CHUNK, outputs)
    x[7, 3] = torch.nan
    served(64, outputs, CHUNK)(x, out, rectified)()
    assert out[7].isnan().all()
    assert not out[:7].isnan().any()


@pytest.mark.parametrize(
    ("inputs", "outputs", "rows"),
    [(64, 1, 256), (64, 12, 256), (64, 100, 256), (18, 5, 256), (64, 64, 255)],
    ids=["one output", "neither few nor in tiles", "not in tiles", "inputs not in eights", "rows not in fours"],
)
def test_other_sizes_are_left_to_torch(inputs: int, outputs: int, rows: int) -> None:
    assert products.product(*layer(inputs, outputs), rows) is None


def test_a_processor_without_wide_registers_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", dict)
    assert products.product(*layer(64, 64), CHUNK) is None


@pytest.mark.parametrize("outputs", [5, 64])
def test_another_order_of_torch_is_noticed(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of the same inputs from the last to the first."""
    served(64, outputs)
    products._agrees.cache_clear()
    monkeypatch.setattr(torch, "addmm", lambda bias, x, weight: bias + x.flip(1) @ weight.flip(0))
    assert products.product(*layer(64, outputs), 3 * CHUNK) is None


def test_what_has_gaps_is_not_compiled() -> None:
    made = served(64, 64, CHUNK)
    with pytest.raises(TypingError, match="contiguous arrays of float32"):
        made(torch.zeros(CHUNK, 128)[:, ::2], torch.zeros(CHUNK, 64), False)()


@pytest.mark.parametrize(("kind", "size"), [("mlp", 64), ("gru", 64), ("mlp", 44)])
def test_a_network_says_the_same_with_torchs_own(kind: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, last = np.random.default_rng(0), np.zeros((CHUNK, 3), np.int16)

    def seats() -> Any:
        policy = random_policy(record_of("spread", kind, hidden_dim=size))
        return policy.seats(np.zeros((CHUNK, 3, policy.hidden_size), np.float32))

    compiled = seats()
    monkeypatch.setattr(products, "product", lambda *_: None)
    plain = seats()
    for _ in range(3):
        seen = rng.normal(size=(CHUNK, 3, 18)).astype(np.float32)
        compiled.inputs[:, :, :18] = plain.inputs[:, :, :18] = seen
        assert compiled.ask(last).tobytes() == plain.ask(last).tobytes()
        assert compiled.hidden.tobytes() == plain.hidden.tobytes()
