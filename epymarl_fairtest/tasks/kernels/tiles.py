"""A layer of a small network for worlds as columns, in tiles that fill the processor's widest registers.

A loop would be compiled to half of their width on Intel's processors, and reads what goes in again for every output
(docs/decisions/082). Only for numbers whose products and sums are exact, as on the grid of tag's prey: whether a
product is rounded before it is added is left to the compiler.
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

REGISTER = 8  # numbers
ACROSS = 2 * REGISTER  # columns of a tile
OUTPUTS = 8  # of a tile: sixteen sums, which hide the wait for each other

NUMBER, INDEX, PLACE = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
VECTOR = ir.VectorType(NUMBER, REGISTER)


def _tile(_: Any, x: Any, inputs: Any, weight: Any, bias: Any, out: Any, output: Any, column: Any) -> Any:
    if any(given.layout != "C" or given.dtype != types.float64 for given in (x, weight, bias, out)):
        raise TypingError("a tile takes contiguous arrays of float64")
    return types.void(x, types.intp, weight, bias, out, types.intp, types.intp), _compiled


def _compiled(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    build = cast("Any", cgutils)
    x, weight, bias, out = (context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 2, 3, 4))
    inputs, first, column = args[1], args[5], args[6]
    function = ir.FunctionType(VECTOR, [VECTOR] * 3)
    add = build.get_or_insert_function(builder.module, function, f"llvm.fmuladd.v{REGISTER}f64")

    def at(array: Any, row: Any, place: Any) -> Any:
        """The number in this row and place of an array."""
        return builder.gep(array.data, [builder.add(builder.mul(row, builder.extract_value(array.shape, 1)), place)])

    def next_to(index: Any, count: int) -> Any:
        return builder.add(index, ir.Constant(INDEX, count))

    def everywhere(number: Any) -> Any:
        one = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number, ir.Constant(PLACE, 0))
        return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(PLACE, REGISTER), [0] * REGISTER))

    def place(array: Any, row: Any, across: int) -> Any:
        return builder.bitcast(at(array, row, next_to(column, across)), VECTOR.as_pointer())

    tile = [(output, across) for output in range(OUTPUTS) for across in range(0, ACROSS, REGISTER)]
    sums = {one: build.alloca_once(builder, VECTOR) for one in tile}
    for output, across in tile:
        start = builder.load(builder.gep(bias.data, [next_to(first, output)]))
        builder.store(everywhere(start), sums[output, across])
    with build.for_range(builder, inputs) as loop:
        given = {across: builder.load(place(x, loop.index, across), align=8) for across in range(0, ACROSS, REGISTER)}
        for output, across in tile:
            factor = everywhere(builder.load(at(weight, loop.index, next_to(first, output))))
            total = builder.call(add, [factor, given[across], builder.load(sums[output, across])])
            builder.store(total, sums[output, across])
    for output, across in tile:
        builder.store(builder.load(sums[output, across]), place(out, next_to(first, output), across), align=8)
    return context.get_dummy_value()


tile = cast("Callable[[Any, int, Any, Any, Any, int, int], None]", intrinsic(_tile))
"""tile(x, inputs, weight, bias, out, output, column): of weight.T @ x + bias, whose first rows are so many inputs,
OUTPUTS rows from `output` on and ACROSS columns from `column` on. Nothing checks the bounds."""
