"""Asking for memory before it is needed: an instruction on the host, nothing anywhere else.

Of a row of some hundred bytes a few places are read, each of which says where the next is. Where rows have changing
lengths, no processor guesses these places, and each of them is waited for. They are asked for into the second
cache: the first has fewer requests under way than memory could answer.
"""

from __future__ import annotations

from typing import Any

_SECOND_CACHE = 2
_FIRST_CACHE = 3


def prefetch(data: Any, at: Any) -> None:
    """Ask for the bytes around a place that will be read soon; it may be a place that is nowhere."""


def prefetch_page(data: Any, at: Any) -> None:
    """Ask for the bytes around a place a page of memory ahead of what is read, one after the other.

    Processors foresee that, but most of them not from one page to the next.
    """


def stops_at_pages(processor: str) -> bool:
    """Whether to ask for the next page, by LLVM's name of a processor.

    On a Xeon each of many short rows took 27 ns, and then 10 to 12; on a Zen 4 it took 13, and then 14.
    """
    return not processor.startswith("znver")


def compile_prefetch() -> None:
    """Have numba compile :func:`prefetch` to the instruction, which never faults."""
    _compile(prefetch, _SECOND_CACHE)


def compile_prefetch_page(*, wanted: bool | None = None) -> None:
    """Have numba compile :func:`prefetch_page` to the instruction, or to nothing where it does not help.

    Unless it is said whether it is wanted, this processor decides.
    """
    from llvmlite import binding  # type: ignore[import-untyped]  # it has no types

    if wanted is None:
        wanted = stops_at_pages(binding.get_host_cpu_name())
    _compile(prefetch_page, _FIRST_CACHE if wanted else 0)


def _compile(function: Any, locality: int) -> None:
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic, overload

    @intrinsic  # type: ignore[untyped-decorator]  # numba has no types
    def instruction(_typing: Any, data: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if not locality:
                return context.get_dummy_value()
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
