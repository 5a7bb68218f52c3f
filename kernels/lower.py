"""Compiling one signature ahead of time: numba makes LLVM's language of it, LLVM makes objects for each level.

numba compiles for the best level, whatever processor builds; objects for the others are made from the same.
"""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple

from bowstring.kernels.compiling import compiler_type, make_jitable
from bowstring.kernels.library import GENERIC, LEVELS, X86, symbol
from bowstring.kernels.prefetch import INSTRUCTIONS, compile_instruction
from bowstring.kernels.signature import Parameter, Signature, reached, signatures

# LLVM's names of the processors, by level. The first is what numba compiles for.
PROCESSORS: Final = {level: f"x86-64-{level}" for level in LEVELS} if X86 else {GENERIC: "generic"}

_LOOP: Final = """\
def {name}(_start, _stop, _block):
{taken}
    for _item in range(_start, _stop):
        {kernel}(_item, {arguments})
"""


class Objects(NamedTuple):
    """Compiled code of one signature: bytes by symbol."""

    name: str
    code: dict[str, bytes]


def prepare() -> None:
    """Import numba for the level that it compiles for, and let it set itself up, once for all processes to come."""
    os.environ["NUMBA_CPU_NAME"], os.environ["NUMBA_CPU_FEATURES"] = next(iter(PROCESSORS.values())), ""
    import numba
    import numba.extending

    def first(numbers: Any) -> Any:
        return numbers[0]

    numba.jit("int64(int64[::1])", nopython=True, _nrt=False)(first)


def compile_signature(name: str) -> Objects:
    """Compile one signature, by its name, for each level."""
    signature = next(each for each in signatures() if each.name == name)
    text, entry = _lowered(signature)
    return Objects(
        name,
        {symbol(name, level): _emitted(text, entry, level, symbol(name, level)) for level in PROCESSORS},
    )


def _lowered(signature: Signature) -> tuple[str, str]:
    """Return the optimised module of a signature's loop in LLVM's language, and the name of the loop in it."""
    import numba
    import numba.extending

    for function in reached(signature.kernel):
        if function in INSTRUCTIONS:
            compile_instruction(function)
        else:
            # A call for each item, with all that its arrays are made of, costs more than a small kernel does.
            make_jitable(numba.extending, function, forceinline=function is signature.kernel)
    kernel = signature.kernel
    taken, place = {}, 0
    for parameter in signature.parameters:
        taken[f"_take_{parameter.name}"] = _taker(parameter, place)
        place += 2 if parameter.array else 1
    source = _LOOP.format(
        name=signature.name,
        taken="\n".join(f"    {each.name} = _take_{each.name}(_block)" for each in signature.parameters),
        kernel=kernel.__name__,
        arguments=", ".join(each.name for each in signature.parameters),
    )
    made: dict[str, Any] = {}
    exec(compile(source, "<loop>", "exec"), {**kernel.__globals__, **taken}, made)  # noqa: S102  generated
    options = {"nopython": True, "nogil": True, "_nrt": False, "error_model": "numpy"}
    dispatcher = numba.jit(**options, no_cpython_wrapper=True, no_cfunc_wrapper=True)(made[signature.name])
    types = (numba.int64, numba.int64, numba.types.CPointer(numba.int64))
    dispatcher.compile(numba.void(*types))
    compiled = dispatcher.overloads[types]
    return str(compiled.library._final_module), compiled.fndesc.llvm_func_name


def _taker(parameter: Parameter, place: int) -> Any:
    """Return a function of compiled code that takes a parameter out of the block, from one word on or two."""
    import numba
    from llvmlite import ir  # type: ignore[import-untyped]  # it has no types
    from numba.extending import intrinsic
    from numba.np.arrayobj import populate_array

    kind = compiler_type(numba.types, parameter)

    @intrinsic  # type: ignore[untyped-decorator]  # numba has no types
    def take(_typing: Any, block: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            def word(number: int) -> Any:
                return builder.load(builder.gep(arguments[0], [ir.IntType(64)(number)]))

            if not parameter.array:
                bits = builder.trunc(word(place), ir.IntType(parameter.dtype.itemsize * 8))
                wanted = context.get_value_type(kind)
                return bits if wanted == bits.type else builder.bitcast(bits, wanted)
            array = context.make_array(kind)(context, builder)
            width = ir.IntType(64)(parameter.dtype.itemsize)
            data = builder.inttoptr(word(place), array.data.type)
            populate_array(
                array, data=data, shape=[word(place + 1)], strides=[width], itemsize=width, meminfo=None
            )
            return array._getvalue()

        return kind(block), generate

    return take


def _emitted(text: str, entry: str, level: str, name: str) -> bytes:
    """Return the object of a module for a level, with one symbol that others see."""
    from llvmlite import binding

    machine = machine_for(level)
    module = binding.parse_assembly(text)
    for each in (*module.functions, *module.global_variables):
        if each.name == entry:
            each.name = name
        elif not each.is_declaration:
            # Two levels have copies of one function: they must not be taken for each other.
            each.linkage = "internal"
    passes = binding.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, binding.create_pass_builder(machine, binding.create_pipeline_tuning_options()))
    return bytes(machine.emit_object(module))


def machine_for(level: str) -> Any:
    """Return LLVM's machine for a level; for one that there is not, that of every such processor."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    # numba's own machine would make text relocations.
    processor = PROCESSORS.get(level, "x86-64")
    target = binding.Target.from_triple(binding.get_process_triple())
    return target.create_target_machine(cpu=processor, features="", opt=3, reloc="pic", codemodel="default")
