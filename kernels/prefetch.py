"""Asking for memory before it is needed: an instruction on the host, nothing anywhere else.

Of a row of some hundred bytes a few places are read, each of which says where the next is. Where rows have changing
lengths, no processor guesses these places, and each of them is waited for. They are asked for into the second
cache: the first has fewer requests under way than memory could answer.
"""

from __future__ import annotations

from typing import Any, Final


def prefetch(data, at):
    """Ask for the bytes around a place that will be read soon; it may be a place that is nowhere."""


def prefetch_page(data, at):
    """Ask for the bytes around a place a page of memory ahead of what is read, one after the other.

    Processors foresee that, but most of them not from one page to the next: on a Xeon each of many short rows took
    27 ns, and then 10 to 12. A Zen 4, which does not stop at pages, takes 14 instead of 13.
    """


# What numba compiles to an instruction, and into which cache that asks.
INSTRUCTIONS: Final[dict[Any, int]] = {prefetch: 2, prefetch_page: 3}


def compile_instruction(function):
    """Have numba compile one of :data:`INSTRUCTIONS`; the instruction never faults."""
    from llvmlite import ir  # type: ignore[import-untyped]  # it has no types
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic, overload

    locality = INSTRUCTIONS[function]

    @intrinsic  # type: ignore[untyped-decorator]  # numba has no types
    def instruction(_typing: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte)
            declared = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            called = cgutils.get_or_insert_function(builder.module, declared, "llvm.prefetch.p0i8")
            # To be read; into which caches; data, not code.
            builder.call(called, [place, number(0), number(locality), number(1)])
            return context.get_dummy_value()

        return types.void(data, at), generate

    def implementation(data: Any, at: Any) -> Any:  # noqa: ARG001  numba gives their types by these names
        def given(data: Any, at: Any) -> Any:
            return instruction(data, at)

        return given

    overload(function)(implementation)
