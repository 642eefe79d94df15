"""The tensors of a checkpoint as arrays, read without running anything in it and, as a rule, without torch.

A checkpoint as torch saves it is a zip file of numbers, and of a pickle that says which of them belong together. The
few instructions that such a pickle needs are followed here; whatever else is in a file is left to torch, which reads or
refuses it (docs/decisions/080). Importing torch takes longer than most of what is done with a team.
"""

from __future__ import annotations

import math
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from epymarl_fairtest.core.errors import FairTestError

if TYPE_CHECKING:
    from torch import Tensor

Values = NDArray[np.float32]
NEXT_STEP = "A policy folder holds agent.th and policy.yaml, as FairTest writes them to RUN/policy."
TENSOR, STORAGE, ORDERED = "torch._utils _rebuild_tensor_v2", "torch FloatStorage", "collections OrderedDict"
MARK = object()


def read_weights(path: Path) -> dict[str, Values]:
    """The named tensors of a file, each an array of its own; refused where it holds anything else."""
    if not path.is_file():
        raise FairTestError(f"There is no checkpoint {str(path)!r}. {NEXT_STEP}")
    try:
        return _plain(path)
    except Exception:  # damaged or unusual, in whatever way
        return {name: array_of(value) for name, value in _by_torch(path).items()}


def array_of(value: Any) -> Values:
    """The numbers of a tensor, where they are; of an array as it is."""
    array: Values = value if isinstance(value, np.ndarray) else value.detach().cpu().contiguous().numpy()
    return array


def _plain(path: Path) -> dict[str, Values]:
    """Of a file as torch saves named tensors of dense float32; some error, if it is anything else."""
    with zipfile.ZipFile(path) as archive:
        parts = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        if any(info.compress_type != zipfile.ZIP_STORED for info in parts.values()):
            raise ValueError("compressed")
        if "byteorder" in parts and archive.read(parts["byteorder"]) != b"little":
            raise ValueError("another order of bytes")
        weights = followed(archive.read(parts["data.pkl"]), lambda key: archive.read(parts[f"data/{key}"]))
    if not all(isinstance(name, str) and isinstance(value, np.ndarray) for name, value in weights.items()):
        raise ValueError("not named tensors")
    return weights


def followed(instructions: bytes, content: Callable[[str], bytes]) -> dict[Any, Any]:
    """What a pickle of named tensors says. Nothing is imported or called by name: three names are known, and what they
    stand for is done here."""
    stack: list[Any] = []
    memo: dict[Any, Any] = {}

    def since_mark() -> list[Any]:
        at = next(place for place in reversed(range(len(stack))) if stack[place] is MARK)
        taken = stack[at + 1 :]
        del stack[at:]
        return taken

    for operation, given, _ in pickletools.genops(instructions):
        match operation.name:
            case "PROTO" | "STOP":
                pass
            case "MARK":
                stack.append(MARK)
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_TUPLE":
                stack.append(())
            case "NEWFALSE" | "NEWTRUE":
                stack.append(operation.name == "NEWTRUE")
            case "BINUNICODE" | "BININT" | "BININT1" | "BININT2":
                stack.append(given)
            case "GLOBAL" if given in (TENSOR, STORAGE, ORDERED):
                stack.append(given)
            case "BINPUT" | "LONG_BINPUT":
                memo[given] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[given])
            case "TUPLE":
                stack.append(tuple(since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                taken = [stack.pop() for _ in range(int(operation.name[-1]))]
                stack.append(tuple(reversed(taken)))
            case "SETITEMS":
                taken = since_mark()
                stack[-1].update(zip(taken[::2], taken[1::2], strict=True))
            case "SETITEM":
                value, name = stack.pop(), stack.pop()
                stack[-1][name] = value
            case "BINPERSID":
                stack.append(_storage(content, *stack.pop()))
            case "REDUCE":
                arguments, called = stack.pop(), stack.pop()
                stack.append({} if (called, arguments) == (ORDERED, ()) else _tensor(called, *arguments))
            case "BUILD":  # what a state dict has besides its tensors: the versions of its modules
                stack.pop()
            case other:
                raise ValueError(other)
    (said,) = stack
    if not isinstance(said, dict):
        raise TypeError(said)
    return said


def _storage(content: Callable[[str], bytes], kind: str, of: str, key: str, place: str, count: int) -> Values:
    """All numbers of a storage, wherever (`place`) they were when they were saved."""
    numbers: Values = np.frombuffer(content(key), "<f4")
    if (kind, of, len(numbers)) != ("storage", STORAGE, count):
        raise ValueError(f"{place}: {count} numbers of {of}")
    return numbers


def _tensor(
    called: str, numbers: Values, first: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> Values:
    """The numbers of a tensor that lies in one piece."""
    in_one_piece = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    if called != TENSOR or first < 0 or strides != in_one_piece or 0 in shape:
        raise ValueError(called)
    return numbers[first : first + math.prod(shape)].reshape(shape).astype(np.float32)


def _by_torch(path: Path) -> dict[str, Tensor]:
    """Tensors only: `weights_only` refuses a pickle that would run code."""
    import torch

    try:
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch fails on a damaged file in many ways, IndexError among them
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise FairTestError(
            f"{str(path)!r} is not a readable checkpoint: it is empty, truncated, or holds more than tensors"
            f" (nothing in it was executed). {reason}. Copy the file again, or save it with the host's save_model=True."
        ) from error
    if not isinstance(weights, dict) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in weights.items()
    ):
        raise FairTestError(f"{str(path)!r} holds no named tensors; expected the agents' state dict.")
    strange = [f"{name} ({_kind(value)})" for name, value in weights.items() if not _is_ordinary(value)]
    if strange:
        raise FairTestError(
            f"{str(path)!r} holds tensors of other kinds than the dense float32 that the hosts train:"
            f" {', '.join(strange[:3])}. Save the agents' state dict as it was trained."
        )
    return weights


def _is_ordinary(tensor: Tensor) -> bool:
    """Dense float32 numbers, all of them in the file."""
    if (str(tensor.layout), str(tensor.dtype), tensor.device.type) != ("torch.strided", "torch.float32", "cpu"):
        return False
    return tensor.untyped_storage().nbytes() >= tensor.numel() * tensor.element_size()


def _kind(tensor: Tensor) -> str:
    parts = (str(part).removeprefix("torch.") for part in (tensor.layout, tensor.dtype, tensor.device))
    return " ".join(part for part in parts if part not in ("strided", "cpu"))
