"""Which of the products that are compiled here has the bits that torch gives on this machine.

Torch is asked once for each size of a layer. What it said is written beside the compiled kernels, under the name of the
torch, the processor and the kernels that it holds for, so that a later process need not import torch in order to ask.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from epymarl_fairtest.core.files import replace_file
from epymarl_fairtest.team import products
from epymarl_fairtest.team.products import Order, orders, product

SWITCHES = ("MKL_", "ATEN_", "DNNL_", "ONEDNN_", "TORCH_")  # what begins like this may change how torch adds up


@cache
def agreed(outputs: int, inputs: int, rows: int) -> Order | None:
    """The order in which torch adds up a layer of this size when it is asked for so many rows, if we can."""
    able = orders(outputs, inputs)
    if not able:
        return None
    told, size = _told(), f"{outputs} x {inputs} x {rows}"
    if size not in told:
        told = {**told, size: compared(outputs, inputs, rows, able)}
        _tell(told)
    return told[size]


def compared(outputs: int, inputs: int, rows: int, able: Sequence[Order]) -> Order | None:
    """Random numbers through a layer of this size, by torch and by us."""
    import torch

    from epymarl_fairtest.team.by_torch import one_thread

    numbers = np.random.default_rng(0)
    x, weight, bias = (
        numbers.standard_normal(size, np.float32) for size in ((rows, inputs), (outputs, inputs), (outputs,))
    )
    with one_thread():
        theirs = torch.addmm(*map(torch.from_numpy, (bias, x, weight.T)))
    wanted, ours = [theirs.numpy().tobytes(), theirs.relu().numpy().tobytes()], np.empty((rows, outputs), np.float32)

    def same(order: Order, rectified: bool) -> bool:
        product(weight, bias, order)(x, ours, rectified)()
        return ours.tobytes() == wanted[rectified]

    return next((order for order in able if same(order, False) and same(order, True)), None)


def _told() -> dict[str, Order | None]:
    """What torch said to earlier processes; nothing where that cannot be read."""
    file = _file()
    with suppress(OSError, ValueError, AttributeError):
        told = json.loads(file.read_bytes()) if file else {}
        return {size: None if said is None else Order(said) for size, said in told.items()}
    return {}


def _tell(told: dict[str, Order | None]) -> None:
    """Where nothing may be written torch is asked anew every time."""
    file = _file()
    if file:
        with suppress(OSError):
            replace_file(file, lambda out: out.write(json.dumps(told).encode()))


@cache
def _file() -> Path | None:
    """Beside the compiled products; None where numba keeps none, or where nobody can say which torch this is."""
    folder, spec = products.kept_in(), find_spec("torch")
    if folder is None or spec is None or spec.origin is None:
        return None
    libraries = sorted((Path(spec.origin).parent / "lib").glob("libtorch_cpu*"))
    if not libraries:
        return None
    sizes = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in libraries]
    switches = sorted((name, value) for name, value in os.environ.items() if name.startswith(SWITCHES))
    about = [sizes, products.processor(), switches, Path(products.__file__).read_text()]
    return folder / f"agreement-{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}.json"
