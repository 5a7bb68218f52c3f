"""Asking for memory before it is needed: an instruction on the host, nothing anywhere else.

Of a row of some hundred bytes a few places are read, each of which says where the next is. Where rows have changing
lengths, no processor guesses these places, and each of them is waited for: 100 ns a row, which may be 18.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SIGNATURES", "compile_prefetch", "prefetch"]


def prefetch(data: Any, at: Any) -> None:
    """Ask for the bytes around a place that will be read soon; it may be a place that is nowhere.

    Examples
    --------
    >>> import numpy as np
    >>> prefetch(np.zeros(3, np.uint8), np.uint64(1 << 40))
    """


def compile_prefetch() -> None:
    """Have numba compile :func:`prefetch` to the instruction, which never faults."""
    from llvmlite import ir  # type: ignore[import-untyped]  # it has no types
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic, overload

    @intrinsic  # type: ignore[untyped-decorator]  # numba has no types
    def instruction(_typing: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte)
            declared = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            called = cgutils.get_or_insert_function(builder.module, declared, "llvm.prefetch.p0i8")
            # To be read, and kept in all caches; data, not code.
            builder.call(called, [place, number(0), number(3), number(1)])
            return context.get_dummy_value()

        return types.void(data, at), generate

    def implementation(data: Any, at: Any) -> Any:  # noqa: ARG001  numba gives their types by these names
        def given(data: Any, at: Any) -> Any:
            return instruction(data, at)

        return given

    overload(prefetch)(implementation)


SIGNATURES: dict[Any, tuple[str, ...]] = {}
