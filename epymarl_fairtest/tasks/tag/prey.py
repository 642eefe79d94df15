"""The trained prey of simple_tag: a small network whose answer does not depend on how it is summed.

Everything lives on a dyadic grid: weights are multiples of 2^-10 with |w| <= 8, inputs and hidden
values are multiples of 2^-12 bounded by 8 and by 128. Every product is then a multiple of 2^-22 and
every partial sum stays below 2^16, that is 38 bits where float64 holds 53: nothing is ever rounded
inside a sum, so BLAS, a plain loop, fused multiply-adds and a compiled kernel agree bit for bit.
Rounding happens only where it is written down (`rint`, ties to even), on values that are exact.
"""

from __future__ import annotations

import lzma
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from epymarl_fairtest.core.errors import FairTestError

WEIGHT_SCALE = 2.0**10
WEIGHT_BOUND = 8.0
VALUE_SCALE = 2.0**12
INPUT_BOUND = 8.0
HIDDEN_BOUND = 128.0
SHAPES: dict[str, tuple[int, ...]] = {
    "w1": (14, 32), "b1": (32,), "w2": (32, 32), "b2": (32,), "w3": (32, 5), "b3": (5,),
}  # fmt: skip
BROKEN = (
    OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, OverflowError,
    RuntimeError, MemoryError, SyntaxError, struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip
"""What numpy, zipfile and the decompressors raise, between them, for a file that is not what it says."""
SHIPPED = Path(__file__).with_name("prey.npz")


def to_grid(weights: np.ndarray) -> np.ndarray:
    """The nearest weights the prey may have; the trainer uses this before it measures anything."""
    bounded = np.clip(np.asarray(weights, dtype=np.float64), -WEIGHT_BOUND, WEIGHT_BOUND)
    return np.rint(bounded * WEIGHT_SCALE) / WEIGHT_SCALE + 0.0


def _snap(values: np.ndarray, low: float, high: float) -> np.ndarray:
    within = np.minimum(np.maximum(low, values), high)  # np.clip takes three times as long for a row
    snapped: np.ndarray = np.rint(within * VALUE_SCALE) / VALUE_SCALE
    return snapped


class Prey:
    """A fixed opponent: 14 observed numbers in, one of the five discrete actions out.

    Weights are laid out input-major (`x @ w + b`), so a kernel can read them as they are.
    """

    def __init__(self, weights: dict[str, np.ndarray], source: str = "the given weights") -> None:
        """Check the weights: off the grid sums would no longer be exact, and nothing would show it."""
        for name, shape in SHAPES.items():
            if name not in weights:
                raise FairTestError(f"{source} has no array '{name}'; it needs {', '.join(SHAPES)}.")
            array = weights[name]
            if array.shape != shape or array.dtype != np.float64:
                raise FairTestError(
                    f"{source}: '{name}' is {array.dtype} {array.shape}, but float64 {shape} is needed."
                )
            if not np.isfinite(array).all():
                raise FairTestError(f"{source}: '{name}' holds NaN or infinity; train the prey again.")
            if not np.array_equal(array, to_grid(array)):
                raise FairTestError(
                    f"{source}: '{name}' is not made of multiples of 2^-10 within +-8; "
                    "pass it through epymarl_fairtest.tasks.tag.prey.to_grid and save it again."
                )
        ready = (np.ascontiguousarray(weights[name]) for name in SHAPES)
        self.w1, self.b1, self.w2, self.b2, self.w3, self.b3 = ready

    @classmethod
    def load(cls, path: str | Path | None = None) -> Prey:
        """Read an .npz as data only: with pickles refused, a hostile file can be wrong but not run."""
        path = SHIPPED if path is None else Path(path)
        try:
            with np.load(path, allow_pickle=False) as archive:
                weights = {name: archive[name] for name in SHAPES if name in archive}
        except FileNotFoundError:
            raise FairTestError(f"The prey's weights {path} do not exist.") from None
        except BROKEN as error:
            raise FairTestError(
                f"The prey's weights {path} cannot be read as a plain .npz ({error}); "
                "restore the shipped file or write a new one with tools/train_prey.py."
            ) from None
        return cls(weights, source=f"The prey's weights {path}")

    def logits(self, observations: np.ndarray) -> np.ndarray:
        """The five scores per row; the final + 0.0 leaves one zero, since -0.0 would betray the order."""
        x = np.asarray(observations, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != 14:
            raise FairTestError(f"The prey sees rows of 14 numbers, not an array of shape {x.shape}.")
        if np.isnan(x).any():
            raise FairTestError("The prey was shown NaN; the world before it has already gone wrong.")
        x = _snap(x, -INPUT_BOUND, INPUT_BOUND)
        h = _snap(x @ self.w1 + self.b1, 0.0, HIDDEN_BOUND)
        h = _snap(h @ self.w2 + self.b2, 0.0, HIDDEN_BOUND)
        scores: np.ndarray = h @ self.w3 + self.b3 + 0.0
        return scores

    def actions(self, observations: np.ndarray) -> np.ndarray:
        """One action per row of observations [B, 14]; ties go to the lowest action."""
        best: np.ndarray = np.argmax(self.logits(observations), axis=1).astype(np.int64)
        return best

    def act(self, observation: np.ndarray) -> int:
        """The action for one world: velocity, position, obstacles, predators as the scenario gives them."""
        return int(self.actions(np.asarray(observation)[None])[0])
