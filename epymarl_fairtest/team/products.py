"""The matrix product of a layer, compiled: the bits that torch gives, in less time than torch takes.

The bits of a product depend only on the order in which its terms are added up. The library behind torch adds those of
12 or more outputs one after the other, each with one rounding, and those of fewer outputs in four or eight sums side by
side, with two (docs/decisions/075 says how that was found). The same is done here, in tiles that fill the processor's
registers. What is written for a row does not depend on how many there are. On another machine torch may add in another
order: team/agreement.py looks before a product is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numpy.typing import NDArray

Values = NDArray[np.float32]
Call = Callable[[], object]
Into = Callable[[Values, Values, bool], Call]

REGISTER = 16  # numbers
ROWS = 4  # of a tile
WIDE = 4 * REGISTER  # outputs of a tile: with four rows sixteen sums, which hide the wait for each other
FOUR = 4  # outputs that are summed up together where there are few
FEW = 12  # outputs; fewer are added up in another order

FLOAT, INDEX, PLACE = ir.FloatType(), ir.IntType(64), ir.IntType(32)


def fits(outputs: int, inputs: int) -> bool:
    """Is there a product for a layer of this size on this processor?"""
    if outputs % WIDE and not (1 < outputs < FEW and inputs % 8 == 0):
        return False
    return bool(llvmlite.binding.get_host_cpu_features().get("avx512f", False))


def product(weight: Values, bias: Values) -> Into:
    """A way to make the call that writes a layer of any whole fours of rows, or its relu, into an array that is there,
    which is `product(...)(x, out, rectified)()`."""
    kernel, packed = (_wide, _tiles) if len(weight) % WIDE == 0 else (_few, _sums)
    return partial(_bound, kernel, packed(weight), bias)


def _bound(kernel: Any, weight: Values, bias: Values, x: Values, out: Values, rectified: bool) -> Call:
    return partial(kernel, x, weight, bias, out, rectified)


def _tiles(weight: Values) -> Values:
    """Weights in the order in which `_wide` reads them: tile by tile, input by input."""
    outputs, inputs = weight.shape
    return weight.reshape(outputs // WIDE, WIDE, inputs).transpose(0, 2, 1).ravel()


def _sums(weight: Values) -> Values:
    """Weights in the order in which `_few` reads them: four numbers of each of four outputs in turn, then the other
    outputs one by one."""
    inputs, whole = weight.shape[1], len(weight) // FOUR * FOUR
    fours = weight[:whole].reshape(whole // FOUR, FOUR, inputs // FOUR, FOUR).transpose(0, 2, 1, 3)
    return np.concatenate([fours.ravel(), weight[whole:].ravel()])


class _Code:
    """What the tiles below are written with: vectors of floats in the code of a kernel."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Sequence[Any]) -> None:
        arrays = [context.make_array(signature.args[i])(context, builder, args[i]) for i in range(4)]
        self.x, self.weight, self.bias, self.out = (array.data for array in arrays)
        self.row, self.column, self.rectified = args[4:]
        self.inputs, self.outputs = (builder.extract_value(arrays[i].shape, 1) for i in (0, 3))
        self.build = builder

    def at(self, *terms: Any) -> Any:
        """The sum of these indices."""
        total = ir.Constant(INDEX, 0)
        for term in terms:
            total = self.build.add(total, ir.Constant(INDEX, term) if isinstance(term, int) else term)
        return total

    def times(self, index: Any, count: int) -> Any:
        return self.build.mul(index, ir.Constant(INDEX, count))

    def load(self, data: Any, place: Any, count: int) -> Any:
        return self.build.load(self._vector(data, place, count), align=4)

    def store(self, vector: Any, place: Any, count: int) -> None:
        self.build.store(vector, self._vector(self.out, place, count), align=4)

    def _vector(self, data: Any, place: Any, count: int) -> Any:
        return self.build.bitcast(self.build.gep(data, [place]), ir.VectorType(FLOAT, count).as_pointer())

    def shuffled(self, vector: Any, places: Sequence[int]) -> Any:
        wanted = ir.Constant(ir.VectorType(PLACE, len(places)), [ir.Constant(PLACE, place) for place in places])
        return self.build.shuffle_vector(vector, vector, wanted)

    def sums(self, count: int, size: int) -> list[Any]:
        """So many vectors of this size that begin as zeros."""
        made = [cast("Any", cgutils).alloca_once(self.build, ir.VectorType(FLOAT, size)) for _ in range(count)]
        for one in made:
            self.build.store(self.zeros(size), one)
        return made

    def zeros(self, size: int) -> Any:
        return ir.Constant(ir.VectorType(FLOAT, size), [0.0] * size)

    def finish(self, summed: Any, row: int, first: int, size: int) -> None:
        """Add the bias of the outputs from this one of the tile on, rectify if asked for, and write."""
        outputs = self.at(self.column, first)
        added = self.build.fadd(summed, self.load(self.bias, outputs, size))
        positive = self.build.fcmp_unordered(">", added, self.zeros(size))  # what is no number stays none
        kept = self.build.select(positive, added, self.zeros(size))
        place = self.at(self.build.mul(self.at(self.row, row), self.outputs), outputs)
        self.store(self.build.select(self.rectified, kept, added), place, size)


def _wide_tile(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """ROWS rows of WIDE outputs: the terms of each one after the other, product and sum rounded once."""
    code = _Code(context, builder, signature, args)
    registers = WIDE // REGISTER
    sums = code.sums(ROWS * registers, REGISTER)
    register = ir.VectorType(FLOAT, REGISTER)
    fused = cast("Any", cgutils).get_or_insert_function(
        builder.module, ir.FunctionType(register, [register] * 3), f"llvm.fma.v{REGISTER}f32"
    )
    starts = [builder.mul(code.at(code.row, row), code.inputs) for row in range(ROWS)]
    tile = builder.mul(code.column, code.inputs)
    with cast("Any", cgutils).for_range(builder, code.inputs) as loop:
        place = code.at(tile, code.times(loop.index, WIDE))
        weights = [code.load(code.weight, code.at(place, REGISTER * i), REGISTER) for i in range(registers)]
        for row, start in enumerate(starts):
            given = code.shuffled(code.load(code.x, code.at(start, loop.index), 1), [0] * REGISTER)
            for i, weight in enumerate(weights):
                total = sums[row * registers + i]
                builder.store(builder.call(fused, [given, weight, builder.load(total)]), total)
    for row in range(ROWS):
        for i in range(registers):
            code.finish(builder.load(sums[row * registers + i]), row, REGISTER * i, REGISTER)
    return context.get_dummy_value()


def _sums_tile(outputs: int, lanes: int, context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """ROWS rows of few outputs: the terms of each in `lanes` sums side by side, product and sum rounded each."""
    code, size = _Code(context, builder, signature, args), outputs * lanes
    sums = code.sums(ROWS, size)
    starts = [builder.mul(code.at(code.row, row), code.inputs) for row in range(ROWS)]
    tile = builder.mul(code.column, code.inputs)
    with cast("Any", cgutils).for_range(builder, builder.udiv(code.inputs, ir.Constant(INDEX, lanes))) as loop:
        weight = code.load(code.weight, code.at(tile, code.times(loop.index, size)), size)
        for total, start in zip(sums, starts, strict=True):
            given = code.load(code.x, code.at(start, code.times(loop.index, lanes)), lanes)
            term = builder.fmul(code.shuffled(given, list(range(lanes)) * outputs), weight)
            builder.store(builder.fadd(builder.load(total), term), total)
    for row, total in enumerate(sums):
        summed, half = builder.load(total), lanes // 2
        while half:  # the sums side by side: each with the one half as many further on
            summed = builder.fadd(summed, code.shuffled(summed, [place ^ half for place in range(size)]))
            half //= 2
        code.finish(code.shuffled(summed, range(0, size, lanes)), row, 0, outputs)
    return context.get_dummy_value()


def _tile(compiled: Callable[..., Any]) -> Any:
    """Inside compiled code: tile(x, weight, bias, out, row, column, rectified)."""

    def typed(_: Any, x: Any, weight: Any, bias: Any, out: Any, row: Any, column: Any, rectified: Any) -> Any:
        if any(given.layout != "C" or given.dtype != types.float32 for given in (x, weight, bias, out)):
            raise TypingError("a product takes contiguous arrays of float32")
        return types.void(x, weight, bias, out, types.intp, types.intp, types.boolean), compiled

    return intrinsic(typed)


_tile_of_64 = _tile(_wide_tile)
_tile_of_4 = _tile(partial(_sums_tile, FOUR, 4))
_tile_of_1 = _tile(partial(_sums_tile, 1, 8))


@njit(cache=True, nogil=True)
def _wide(x: Values, weight: Values, bias: Values, out: Values, rectified: bool) -> None:
    for column in range(0, out.shape[1], WIDE):
        for row in range(0, len(x), ROWS):
            _tile_of_64(x, weight, bias, out, row, column, rectified)


@njit(cache=True, nogil=True)
def _few(x: Values, weight: Values, bias: Values, out: Values, rectified: bool) -> None:
    whole = out.shape[1] // FOUR * FOUR
    for row in range(0, len(x), ROWS):
        for column in range(0, whole, FOUR):
            _tile_of_4(x, weight, bias, out, row, column, rectified)
        for column in range(whole, out.shape[1]):
            _tile_of_1(x, weight, bias, out, row, column, rectified)


def processor() -> tuple[str, list[tuple[str, bool]]]:
    """Its name, and what it can do."""
    return llvmlite.binding.get_host_cpu_name(), sorted(llvmlite.binding.get_host_cpu_features().items())


def kept_in() -> Path | None:
    """Where numba keeps these kernels once they are compiled, if it does."""
    folder = _wide.stats.cache_path
    return Path(folder) if folder else None
