"""The matrix product of a layer, compiled: the bits that torch gives, in less time than torch takes.

The bits of a product depend only on the order in which its terms are added up. The library behind torch adds them one
after the other, each with one rounding. On AMD it adds those of fewer than 12 outputs in four or eight sums side by
side, with two (docs/decisions/075 and 081 say how that was found). The same is done here, in tiles that fill the
processor's registers. What is written for a row does not depend on how many there are. Which order torch has on this
machine, or another one, is for team/agreement.py to find out before a product is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
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

from epymarl_fairtest.core import aligned

Values = NDArray[np.float32]
Call = Callable[[], object]
Into = Callable[[Values, Values, bool], Call]

REGISTER = 16  # numbers
ROWS = 4  # of a tile
WIDE = 4 * REGISTER  # outputs of a tile: with four rows sixteen sums, which hide the wait for each other
TALL = 8  # rows of a tile of one register
AT_ONCE, TALL_AT_ONCE = 2, 8  # inputs between two looks at the end: a tile of one register has little else to do
FOUR = 4  # outputs that are summed up together side by side
FEW = 12  # outputs; fewer may be added up side by side

FLOAT, INDEX, PLACE = ir.FloatType(), ir.IntType(64), ir.IntType(32)


class Order(str, Enum):
    """In which the terms of an output are added up."""

    SIDE_BY_SIDE = "side by side"
    ONE_BY_ONE = "one by one"


def orders(outputs: int, inputs: int) -> list[Order]:
    """Those in which torch may add up a layer of this size, and we can, on this processor."""
    if outputs < 2 or not can_fuse():
        return []
    return [Order.SIDE_BY_SIDE, Order.ONE_BY_ONE] if outputs < FEW and inputs % 8 == 0 else [Order.ONE_BY_ONE]


def can_fuse() -> bool:
    """Has this processor registers of the size that the tiles are written for?"""
    return bool(llvmlite.binding.get_host_cpu_features().get("avx512f", False))


def product(weight: Values, bias: Values, order: Order, onto: bool = False) -> Into:
    """A way to make the call that writes a layer of any whole eights of rows, or its relu, into an array that is there,
    or adds the layer to what stands in it. The call is `product(...)(x, out, rectified)()`."""
    if order is Order.SIDE_BY_SIDE:
        return partial(_bound, _few, _sums(weight), bias, onto)
    kernel, width = (wide, WIDE) if len(weight) % WIDE == 0 else (narrow, REGISTER)
    return partial(_bound, kernel, _tiles(weight, width).reshape(-1), _tiles(bias[:, None], width).reshape(-1), onto)


def _bound(kernel: Any, weight: Values, bias: Values, onto: bool, x: Values, out: Values, rectified: bool) -> Call:
    return partial(kernel, x, weight, bias, out, rectified, onto)


def _tiles(weight: Values, width: int) -> Values:
    """Weights in the order in which they are added one by one: tile by tile, input by input, with zeros for the outputs
    that a tile has room for. A register is never read from two lines of memory."""
    outputs, inputs = weight.shape
    tiles = aligned.zeros((-(-outputs // width), inputs, width), np.float32)
    for output in range(outputs):
        tiles[output // width, :, output % width] = weight[output]
    return tiles


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
        self.row, self.column, self.rectified, self.onto = args[4:]
        self.inputs, self.outputs = (builder.extract_value(arrays[i].shape, 1) for i in (0, 3))
        self.build = builder
        self.down, self.along = self._steps(arrays[0], signature.args[0].layout)

    def _steps(self, x: Any, layout: str) -> tuple[Any, Any]:
        """From a number of x to that of the next row, and to the next of the same row."""
        one = ir.Constant(INDEX, 1)
        if layout == "C":
            return self.inputs, one
        size = ir.Constant(INDEX, 4)
        down, along = (self.build.sdiv(self.build.extract_value(x.strides, axis), size) for axis in (0, 1))
        return (one if layout == "F" else down), along

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

    def store(self, vector: Any, place: Any, count: int, wanted: Any = None) -> None:
        """All of a vector, or the numbers of it that are `wanted`."""
        pointer = self._vector(self.out, place, count)
        if wanted is None:
            self.build.store(vector, pointer, align=4)
        else:
            self._masked("store", ir.VoidType(), [vector, pointer, ir.Constant(PLACE, 4), wanted])

    def before(self, place: Any, count: int, wanted: Any = None) -> Any:
        """What stands where it will be stored."""
        if wanted is None:
            return self.load(self.out, place, count)
        pointer, others = self._vector(self.out, place, count), self.zeros(count)
        return self._masked("load", others.type, [pointer, ir.Constant(PLACE, 4), wanted, others])

    def _masked(self, what: str, result: Any, given: Sequence[Any]) -> Any:
        name = f"llvm.masked.{what}.v{REGISTER}f32.p0v{REGISTER}f32"
        return self.build.call(self.function(name, result, [one.type for one in given]), given)

    def function(self, name: str, result: Any, kinds: Sequence[Any]) -> Any:
        return cast("Any", cgutils).get_or_insert_function(self.build.module, ir.FunctionType(result, kinds), name)

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

    def wanted(self) -> Any:
        """Which outputs of a tile of one register the layer has."""
        left = self.build.trunc(self.build.sub(self.outputs, self.column), PLACE)
        first = self.build.insert_element(
            ir.Constant(ir.VectorType(PLACE, REGISTER), None), left, ir.Constant(PLACE, 0)
        )
        places = ir.Constant(ir.VectorType(PLACE, REGISTER), [ir.Constant(PLACE, i) for i in range(REGISTER)])
        return self.build.icmp_signed("<", places, self.shuffled(first, [0] * REGISTER))

    def finish(self, summed: Mapping[tuple[int, int], Any], size: int, wanted: Any = None) -> None:
        """By row and first output of the tile: add the bias, and what was there or rectify if asked for, and write."""
        totals, places = self.sums(len(summed), size), []
        for total, ((row, first), vector) in zip(totals, summed.items(), strict=True):
            outputs = self.at(self.column, first)
            places.append(self.at(self.build.mul(self.at(self.row, row), self.outputs), outputs))
            self.build.store(self.build.fadd(vector, self.load(self.bias, outputs, size)), total)
        with self.build.if_then(self.onto):  # once for the tile: a look for each vector takes longer
            for total, place in zip(totals, places, strict=True):
                self.build.store(self.build.fadd(self.build.load(total), self.before(place, size, wanted)), total)
        for added, place in zip(map(self.build.load, totals), places, strict=True):
            positive = self.build.fcmp_unordered(">", added, self.zeros(size))  # what is no number stays none
            kept = self.build.select(positive, added, self.zeros(size))
            self.store(self.build.select(self.rectified, kept, added), place, size, wanted)


def _fused_tile(rows: int, registers: int, at_once: int, context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """So many rows and registers of outputs: the terms of each one after the other, product and sum rounded once."""
    code = _Code(context, builder, signature, args)
    sums, register = code.sums(rows * registers, REGISTER), ir.VectorType(FLOAT, REGISTER)
    fused = code.function(f"llvm.fma.v{REGISTER}f32", register, [register] * 3)
    starts = [builder.mul(code.at(code.row, row), code.down) for row in range(rows)]
    tile = builder.mul(code.column, code.inputs)

    def add(given: Any, along: Any) -> None:
        place = code.at(tile, code.times(given, REGISTER * registers))
        weights = [code.load(code.weight, code.at(place, REGISTER * i), REGISTER) for i in range(registers)]
        for row, start in enumerate(starts):
            place = code.at(start, builder.mul(given, along))
            x = code.shuffled(code.load(code.x, place, 1), [0] * REGISTER)
            for weight, total in zip(weights, sums[row * registers :], strict=False):
                builder.store(builder.call(fused, [x, weight, builder.load(total)]), total)

    def add_all(along: Any) -> None:
        whole = builder.udiv(code.inputs, ir.Constant(INDEX, at_once))
        with cast("Any", cgutils).for_range(builder, whole) as loop:
            for i in range(at_once):
                add(code.at(code.times(loop.index, at_once), i), along)
        done = code.times(whole, at_once)
        with cast("Any", cgutils).for_range(builder, builder.sub(code.inputs, done)) as loop:
            add(code.at(done, loop.index), along)

    if signature.args[0].layout == "A":  # numbers that are known to lie side by side take half as long
        one = ir.Constant(INDEX, 1)
        with builder.if_else(builder.icmp_signed("==", code.along, one)) as (beside, apart):
            with beside:
                add_all(one)
            with apart:
                add_all(code.along)
    else:
        add_all(code.along)
    places = [(row, REGISTER * i) for row in range(rows) for i in range(registers)]
    summed = dict(zip(places, map(builder.load, sums), strict=True))
    code.finish(summed, REGISTER, code.wanted() if registers == 1 else None)
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
    ready = {}
    for row, total in enumerate(sums):
        summed, half = builder.load(total), lanes // 2
        while half:  # the sums side by side: each with the one half as many further on
            summed = builder.fadd(summed, code.shuffled(summed, [place ^ half for place in range(size)]))
            half //= 2
        ready[row, 0] = code.shuffled(summed, range(0, size, lanes))
    code.finish(ready, outputs)
    return context.get_dummy_value()


def _tile(compiled: Callable[..., Any], layouts: str = "CFA") -> Any:
    """Inside compiled code: tile(x, weight, bias, out, row, column, rectified, onto), where x lies in memory as one of
    these `layouts` says, the others without gaps."""

    def typed(
        _: Any, x: Any, weight: Any, bias: Any, out: Any, row: Any, column: Any, rectified: Any, onto: Any
    ) -> Any:
        arrays, close = (x, weight, bias, out), all(given.layout == "C" for given in (weight, bias, out))
        if not close or x.layout not in layouts or any(given.dtype != types.float32 for given in arrays):
            raise TypingError("a product takes contiguous arrays of float32")
        where, how = [types.intp] * 2, [types.boolean] * 2
        return types.void(*arrays, *where, *how), compiled

    return intrinsic(typed)


_tile_of_64 = _tile(partial(_fused_tile, ROWS, WIDE // REGISTER, AT_ONCE))
_tile_of_16 = _tile(partial(_fused_tile, TALL, 1, TALL_AT_ONCE))
_tile_of_4 = _tile(partial(_sums_tile, FOUR, 4), "C")
_tile_of_1 = _tile(partial(_sums_tile, 1, 8), "C")


@njit(cache=True, nogil=True)
def wide(x: Values, weight: Values, bias: Values, out: Values, rectified: bool, onto: bool) -> None:
    for column in range(0, out.shape[1], WIDE):
        for row in range(0, len(x), ROWS):
            _tile_of_64(x, weight, bias, out, row, column, rectified, onto)


@njit(cache=True, nogil=True)
def narrow(x: Values, weight: Values, bias: Values, out: Values, rectified: bool, onto: bool) -> None:
    for column in range(0, out.shape[1], REGISTER):
        for row in range(0, len(x), TALL):
            _tile_of_16(x, weight, bias, out, row, column, rectified, onto)


@njit(cache=True, nogil=True)
def _few(x: Values, weight: Values, bias: Values, out: Values, rectified: bool, onto: bool) -> None:
    whole = out.shape[1] // FOUR * FOUR
    for row in range(0, len(x), ROWS):
        for column in range(0, whole, FOUR):
            _tile_of_4(x, weight, bias, out, row, column, rectified, onto)
        for column in range(whole, out.shape[1]):
            _tile_of_1(x, weight, bias, out, row, column, rectified, onto)


def processor() -> tuple[str, list[tuple[str, bool]]]:
    """Its name, and what it can do."""
    return llvmlite.binding.get_host_cpu_name(), sorted(llvmlite.binding.get_host_cpu_features().items())


def kept_in() -> Path | None:
    """Where numba keeps these kernels once they are compiled, if it does."""
    folder = wide.stats.cache_path
    return Path(folder) if folder else None
