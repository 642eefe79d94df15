"""Numbers that the compiler of a kernel knows, so that it unrolls the loops over them."""

Sizes = tuple[None, ...]
"""Its length is the number, not what is in it: numba knows the length of a tuple from its type."""


def known(number: int) -> Sizes:
    return (None,) * number
