"""Compiled products of layers against torch's own: the same bits, or torch's own are used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding
import numpy as np
import pytest
import torch
from numba.core.errors import TypingError
from support import random_policy, record_of

from epymarl_fairtest.team import agent, agreement, products
from epymarl_fairtest.team.contract import CHUNK

SIZES = [(18, 64), (64, 64), (21, 128), (128, 384), (64, 2), (64, 5), (128, 6), (40, 9), (64, 11), (64, 12), (44, 100)]
ONE_BY_ONE, SIDE_BY_SIDE = products.Order.ONE_BY_ONE, products.Order.SIDE_BY_SIDE


@pytest.fixture(autouse=True)
def _asked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch is asked once for each size: here again, and nobody after us hears what it said while it was replaced."""
    monkeypatch.setattr(products, "kept_in", lambda: tmp_path)
    agreement.agreed.cache_clear()
    agreement._file.cache_clear()
    yield
    agreement.agreed.cache_clear()
    agreement._file.cache_clear()


def layer(inputs: int, outputs: int) -> tuple[products.Values, products.Values]:
    rng = np.random.default_rng(inputs * outputs)
    return rng.standard_normal((outputs, inputs), np.float32), rng.standard_normal(outputs, np.float32)


def served(inputs: int, outputs: int, rows: int = 3 * CHUNK) -> products.Into:
    order = agreement.agreed(outputs, inputs, rows)
    if order is None:
        pytest.skip("torch adds up in another order on this machine: its own products are used")
    return products.product(*layer(inputs, outputs), order)


@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
@pytest.mark.parametrize("rectified", [False, True])
def test_torch_gives_the_same_bits(inputs: int, outputs: int, rectified: bool) -> None:
    weight, bias = layer(inputs, outputs)
    x = np.random.default_rng(1).standard_normal((3 * CHUNK, inputs), np.float32) * 100
    x[::2] = x[::2].clip(0)
    out = np.full((3 * CHUNK, outputs), np.nan, np.float32)
    served(inputs, outputs)(x, out, rectified)()
    theirs = torch.addmm(*map(torch.from_numpy, (bias, x, weight.T)))
    assert out.tobytes() == (theirs.relu() if rectified else theirs).numpy().tobytes()


@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_a_layer_is_added_to_what_stands_there(inputs: int, outputs: int) -> None:
    rng = np.random.default_rng(1)
    x, before = (rng.standard_normal((CHUNK, count), np.float32) for count in (inputs, outputs))
    (plain, after), order = (before.copy(), before.copy()), agreement.agreed(outputs, inputs, CHUNK)
    if order is None:
        pytest.skip("torch adds up in another order on this machine: its own products are used")
    for out, onto in ((plain, False), (after, True)):
        products.product(*layer(inputs, outputs), order, onto)(x, out, False)()
    assert after.tobytes() == (plain + before).tobytes()


@pytest.mark.parametrize(("inputs", "outputs"), SIZES)
def test_a_row_is_the_same_among_few(inputs: int, outputs: int) -> None:
    x = np.random.default_rng(1).standard_normal((CHUNK, inputs), np.float32)
    many, few = (np.zeros((rows, outputs), np.float32) for rows in (CHUNK, 8))
    served(inputs, outputs, CHUNK)(x, many, False)()
    served(inputs, outputs, CHUNK)(x[16:24], few, False)()
    assert few.tobytes() == many[16:24].tobytes()


@pytest.mark.parametrize("rectified", [False, True])
@pytest.mark.parametrize("outputs", [5, 64])
def test_what_is_no_number_stays_none(outputs: int, rectified: bool) -> None:
    x, out = np.zeros((CHUNK, 64), np.float32), np.zeros((CHUNK, outputs), np.float32)
    x[7, 3] = np.nan
    served(64, outputs, CHUNK)(x, out, rectified)()
    assert np.isnan(out[7]).all()
    assert not np.isnan(out[:7]).any()


def test_one_output_is_left_to_torch() -> None:
    assert agreement.agreed(1, 64, CHUNK) is None


def test_a_processor_without_wide_registers_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", dict)
    assert agreement.agreed(64, 64, CHUNK) is None


@pytest.mark.parametrize("outputs", [5, 64])
def test_another_order_of_torch_is_noticed(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of the same inputs from the last to the first."""
    served(64, outputs)
    monkeypatch.setattr(torch, "addmm", lambda bias, x, weight: bias + x.flip(1) @ weight.flip(0))
    assert agreement.compared(outputs, 64, 3 * CHUNK, products.orders(outputs, 64)) is None


@pytest.mark.parametrize("outputs", [5, 11])
@pytest.mark.parametrize("order", products.Order)
def test_the_order_that_torch_has_is_found(
    order: products.Order, outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    able = products.orders(outputs, 64)
    if not able:
        pytest.skip("this processor has no wide registers")

    def addmm(bias: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = np.empty((len(x), outputs), np.float32)
        products.product(weight.T.contiguous().numpy(), bias.numpy(), order)(x.numpy(), out, False)()
        return torch.from_numpy(out)

    monkeypatch.setattr(torch, "addmm", addmm)
    assert agreement.compared(outputs, 64, 3 * CHUNK, able) is order


def test_a_later_process_need_not_ask_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served(64, 64)
    agreement.agreed.cache_clear()
    monkeypatch.setattr(agreement, "compared", lambda *_: pytest.fail("asked again"))
    assert agreement.agreed(64, 64, 3 * CHUNK) is ONE_BY_ONE
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("change", ["a switch of torch's library", "another processor", "other kernels"])
def test_what_was_said_of_something_else_does_not_count(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served(64, 64)
    agreement.agreed.cache_clear()
    agreement._file.cache_clear()
    if change == "another processor":
        monkeypatch.setattr(llvmlite.binding, "get_host_cpu_name", lambda: "another")
    elif change == "other kernels":
        monkeypatch.setattr(products, "__file__", __file__)
    else:
        monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setattr(agreement, "compared", lambda *_: None)
    assert agreement.agreed(64, 64, 3 * CHUNK) is None
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"64 x 64 x 768": 1}', '{"64 x 64 x 768": "no"}'])
def test_a_damaged_file_is_not_believed(content: str, tmp_path: Path) -> None:
    served(64, 64)
    (file,) = tmp_path.iterdir()
    said = file.read_text()
    file.write_text(content)
    agreement.agreed.cache_clear()
    assert agreement.agreed(64, 64, 3 * CHUNK)
    assert file.read_text() == said


def test_where_nothing_can_be_kept_torch_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    served(64, 64)
    agreement.agreed.cache_clear()
    agreement._file.cache_clear()
    monkeypatch.setattr(products, "kept_in", lambda: None)
    assert agreement.agreed(64, 64, 3 * CHUNK)


@pytest.mark.parametrize("outputs", [12, 64])
def test_rows_may_lie_in_memory_as_they_like(outputs: int) -> None:
    x, made = np.random.default_rng(1).standard_normal((CHUNK, 128), np.float32), served(64, outputs, CHUNK)
    wanted, given = np.empty((CHUNK, outputs), np.float32), np.zeros((CHUNK, outputs), np.float32)
    for rows in (x[:, ::2], x[:, 64:], np.asfortranarray(x[:, :64]), x[::-1, :64]):
        made(np.ascontiguousarray(rows), wanted, False)()
        made(rows, given, False)()
        assert given.tobytes() == wanted.tobytes()


def test_what_has_gaps_is_not_compiled() -> None:
    gaps, none = np.zeros((CHUNK, 128), np.float32)[:, ::2], np.zeros((CHUNK, 64), np.float32)
    with pytest.raises(TypingError, match="contiguous arrays of float32"):
        served(64, 64, CHUNK)(none, gaps, False)()
    side_by_side = products.product(*layer(64, 4), SIDE_BY_SIDE)
    with pytest.raises(TypingError, match="contiguous arrays of float32"):
        side_by_side(gaps, np.zeros((CHUNK, 4), np.float32), False)()


@pytest.mark.parametrize(("kind", "size"), [("mlp", 64), ("gru", 64), ("mlp", 44)])
def test_a_network_says_the_same_with_torchs_own(kind: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, last = np.random.default_rng(0), np.zeros((CHUNK, 3), np.int16)

    def seats() -> Any:
        policy = random_policy(record_of("spread", kind, hidden_dim=size))
        return policy.seats(np.zeros((CHUNK, 3, policy.hidden_size), np.float32))

    compiled = seats()
    monkeypatch.setattr(agent, "agreed", lambda *_: None)
    plain = seats()
    for _ in range(3):
        seen = rng.normal(size=(CHUNK, 3, 18)).astype(np.float32)
        compiled.inputs[:, :, :18] = plain.inputs[:, :, :18] = seen
        assert compiled.ask(last).tobytes() == plain.ask(last).tobytes()
        assert compiled.hidden.tobytes() == plain.hidden.tobytes()
