"""A layer computed by torch, on arrays: where nothing that is compiled has torch's bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear, pad

Values = NDArray[np.float32]
Call = Callable[[], object]
STEADY = 16  # outputs


@contextmanager
def one_thread() -> Iterator[None]:
    """torch may split a product differently among more threads, and its last bits with it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _addmm_relu(bias: Tensor, x: Tensor, weight: Tensor, *, out: Tensor) -> Tensor:
    return torch.addmm(bias, x, weight, out=out).relu_()


# torch's own saves a call, but its name does not promise to stay.
ADDMM_RELU: Callable[..., Tensor] = getattr(torch, "_addmm_activation", _addmm_relu)


def layer(weight: Values, bias: Values) -> Callable[[Values, Values, bool], Call]:
    """A linear layer whose rows do not change their last bit with their place in the batch.

    Measured: they do for fewer than 16 outputs of inputs that do not come in fours (docs/decisions/001). Such a
    layer gets outputs that are thrown away.
    """
    (outputs, inputs), (turned, added) = weight.shape, map(torch.from_numpy, (weight.T, bias))
    if outputs < STEADY and inputs % 4:
        missing = STEADY - outputs
        return partial(_padded, pad(turned.T, (0, 0, 0, missing)), pad(added, (0, missing)))
    return partial(_exact, turned, added)


def _exact(turned: Tensor, bias: Tensor, x: Values, out: Values, rectified: bool) -> Call:
    how = ADDMM_RELU if rectified else torch.addmm
    return partial(how, bias, torch.from_numpy(x), turned, out=torch.from_numpy(out))


def _padded(weight: Tensor, bias: Tensor, x: Values, out: Values, rectified: bool) -> Call:
    given, wanted = torch.from_numpy(x), torch.from_numpy(out)

    def call() -> None:
        y = linear(given, weight, bias)[:, : wanted.shape[1]]
        wanted.copy_(y.relu_() if rectified else y)

    return call
