"""Copies inside compiled code, in the processor's widest registers.

A loop that copies numbers is compiled number by number, for the compiler cannot know that source and target are not
the same memory; and then the processor waits for few lines of memory at a time, not for many (docs/decisions/071).
"""

from collections.abc import Callable
from typing import Any, cast

from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic


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
