"""Copies inside compiled code, in the processor's widest registers.

A loop that copies numbers is compiled number by number, for the compiler cannot know that source and target are not
the same memory; and then the processor waits for few lines of memory at a time, not for many (docs/decisions/071).
"""

from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic

from epymarl_fairtest.core.aligned import LINE


def _copy(_: Any, to: Any, place: Any, source: Any, first: Any, count: Any) -> Any:
    if not (to.layout == source.layout == "C" and to.dtype == source.dtype):
        raise TypingError(f"cannot copy from {source} to {to}: both must be contiguous and of one type")
    return types.void(to, types.intp, source, types.intp, types.intp), _compiled


def _compiled(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    to, source = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 2))
    size, build = context.get_abi_sizeof(context.get_value_type(signature.args[0].dtype)), cast("Any", cgutils)
    build.raw_memcpy(builder, builder.gep(to, [args[1]]), builder.gep(source, [args[3]]), args[4], size)
    return context.get_dummy_value()


copy = cast("Callable[[Any, int, Any, int, int], None]", intrinsic(_copy))
"""copy(to, place, source, first, count): `count` numbers of `source`, from its number `first` on, to number `place` of
`to` and those behind it. Both are contiguous and of one type, numbers are counted through all axes, and nothing checks
the bounds."""


def _clear(_: Any, to: Any, place: Any, count: Any) -> Any:
    return types.void(to, types.intp, types.intp), _cleared


def _cleared(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    size = context.get_abi_sizeof(context.get_value_type(signature.args[0].dtype))
    length = builder.mul(args[2], args[2].type(size))
    cast("Any", cgutils).memset(builder, builder.gep(data, [args[1]]), length, 0)
    return context.get_dummy_value()


clear = cast("Callable[[Any, int, int], None]", intrinsic(_clear))
"""clear(to, place, count): `count` numbers of `to`, from its number `place` on, become zero. `to` is contiguous, and
nothing checks the bounds."""


def _fetch(_: Any, to: Any, place: Any, count: Any) -> Any:
    return types.void(to, types.intp, types.intp), _fetched


def _fetched(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    data = context.make_array(signature.args[0])(context, builder, args[0]).data
    size, build = context.get_abi_sizeof(context.get_value_type(signature.args[0].dtype)), cast("Any", cgutils)
    function = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], function)
    how = [ir.Constant(number, one) for one in (1, 3, 1)]  # to be written, soon, no code
    start = builder.bitcast(builder.gep(data, [args[1]]), byte)
    end = builder.mul(args[2], args[2].type(size))
    with build.for_range_slice(builder, end.type(0), end, end.type(LINE), inc=True) as (offset, _):
        builder.call(prefetch, [builder.gep(start, [offset]), *how])
    builder.call(prefetch, [builder.gep(start, [builder.sub(end, end.type(1))]), *how])
    return context.get_dummy_value()


fetch = cast("Callable[[Any, int, int], None]", intrinsic(_fetch))
"""fetch(to, place, count): tells the processor that `count` numbers of `to`, from its number `place` on, will soon be
written, so that it need not wait for their memory then. It changes nothing, and any place will do."""
