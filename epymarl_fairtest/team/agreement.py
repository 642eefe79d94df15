"""Whether torch, on this machine, gives the bits of the products that are compiled here.

Torch is asked once for each size of a layer. What it said is written beside the compiled kernels, under the name of the
torch, the processor and the kernels that it holds for, so that a later process need not import torch in order to ask.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from epymarl_fairtest.core.files import replace_file
from epymarl_fairtest.team import products

SWITCHES = ("MKL_", "ATEN_", "DNNL_", "ONEDNN_", "TORCH_")  # what begins like this may change how torch adds up


@cache
def agrees(outputs: int, inputs: int, rows: int) -> bool:
    """Is there a product for a layer of this size, and has torch the same bits when it is asked for so many rows?"""
    if not products.fits(outputs, inputs):
        return False
    told, size = _told(), f"{outputs} x {inputs} x {rows}"
    if size not in told:
        told = {**told, size: compared(outputs, inputs, rows)}
        _tell(told)
    return told[size]


def compared(outputs: int, inputs: int, rows: int) -> bool:
    """Random numbers through a layer of this size, by torch and by us."""
    import torch

    from epymarl_fairtest.team.by_torch import one_thread

    numbers = np.random.default_rng(0)
    x, weight, bias = (
        numbers.standard_normal(size, np.float32) for size in ((rows, inputs), (outputs, inputs), (outputs,))
    )
    with one_thread():
        theirs = torch.addmm(*map(torch.from_numpy, (bias, x, weight.T)))
    made, ours = products.product(weight, bias), np.empty((rows, outputs), np.float32)
    made(x, ours, False)()
    same = ours.tobytes() == theirs.numpy().tobytes()
    made(x, ours, True)()
    return same and ours.tobytes() == theirs.relu().numpy().tobytes()


def _told() -> dict[str, bool]:
    """What torch said to earlier processes; nothing where that cannot be read."""
    file = _file()
    with suppress(OSError, ValueError):
        told = json.loads(file.read_bytes()) if file else {}
        if isinstance(told, dict) and all(isinstance(said, bool) for said in told.values()):
            return told
    return {}


def _tell(told: dict[str, bool]) -> None:
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
