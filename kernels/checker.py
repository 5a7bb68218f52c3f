"""The checker: refuses kernels whose three runs could differ, compiled, on CUDA and interpreted.

It follows the types of a signature through a kernel and all that it calls. What it refuses, and why:

* operands of two types: ``u64 - i64`` is a float in NumPy and an integer where it is compiled;
* bare literals: they take another type in each run;
* arithmetic narrower than 64 bits: NumPy wraps ``u8 + u8`` where compiled code widens;
* float arithmetic (CUDA fuses ``a * b + c``) and floats made integers (out of range, each does its own);
* a name with two types, or one that is not assigned on every way to where it is used;
* calls of anything but functions of kernel modules, typed constructors, ``len``, ``min`` and ``max``;
* statements and expressions that kernels have no use for: exceptions, strings, containers, closures.

What it cannot see: shifts by 64 or more, and indices out of bounds.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import textwrap
import types
from typing import Any, Final

import numpy as np

from bowstring.errors import UsageError
from bowstring.kernels.jitable import called
from bowstring.kernels.signature import Signature
from bowstring.kernels.types import SCALARS

__all__ = ["check"]

# "u64", "u8[]", "u8[]!", "bool", "length" (of ``len``), "none", or a tuple of these.
Type = str | tuple["Type", ...]

_NAMES: Final = {np.dtype(scalar): name for name, scalar in SCALARS.items()} | {np.dtype(np.bool_): "bool"}
_CONSTRUCTORS: Final = {scalar: name for name, scalar in SCALARS.items()}
_WIDE: Final = ("i64", "u64")
_FLOATS: Final = ("f32", "f64")
_ARITHMETIC: Final = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.FloorDiv,
    ast.Mod,
    ast.LShift,
    ast.RShift,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
)
_COMPARISONS: Final = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def check(signature: Signature) -> None:
    """Check one signature of a kernel, and all functions that the kernel reaches.

    Raises
    ------
    UsageError
        The kernel does what could differ between its runs; the error names the line.

    Examples
    --------
    >>> from bowstring.kernels.registry import signatures
    >>> for signature in signatures():
    ...     check(signature)
    """
    parameters = ("i64", *map(str, signature.parameters))
    if _Checked().result(signature.kernel, parameters) != "none":
        raise UsageError("a kernel returns nothing; it writes arrays", found=str(signature))


class _Checked:
    """The functions that were checked for one signature, by the types they were called with."""

    def __init__(self) -> None:
        self.results: dict[tuple[Any, tuple[Type, ...]], Type | None] = {}

    def result(self, function: Any, arguments: tuple[Type, ...]) -> Type:
        """Return what a function returns for arguments of these types."""
        key = function, arguments
        if key not in self.results:
            self.results[key] = None
            self.results[key] = _Function(self, function, arguments).check()
        found = self.results[key]
        if found is None:
            raise UsageError("a kernel calls itself", found=function.__qualname__)
        return found


@dataclasses.dataclass(slots=True)
class _Function:
    """One function, checked from its first statement to its last."""

    checked: _Checked
    function: Any
    arguments: tuple[Type, ...]
    types: dict[str, Type] = dataclasses.field(default_factory=dict)
    assigned: set[str] = dataclasses.field(default_factory=set)
    returned: Type | None = None

    def check(self) -> Type:
        lines, first = inspect.getsourcelines(self.function)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
        ast.increment_lineno(tree, first - 1)
        if not isinstance(tree, ast.FunctionDef) or tree.decorator_list or self.function.__closure__:
            raise self.refusal(tree, "a kernel is a plain function, without decorators and closures")
        given = tree.args
        if given.vararg or given.kwarg or given.kwonlyargs or given.defaults:
            raise self.refusal(tree, "a kernel takes plain parameters only")
        names = [each.arg for each in (*given.posonlyargs, *given.args)]
        if len(names) != len(self.arguments):
            raise self.refusal(tree, f"{tree.name} is called with {len(self.arguments)} arguments")
        self.types.update(zip(names, self.arguments, strict=True))
        self.assigned.update(names)
        goes_on = self.block(tree.body)
        if goes_on and self.returned not in (None, "none"):
            raise self.refusal(tree, "a function that returns a value must return one on every way")
        return self.returned or "none"

    def refusal(self, node: ast.stmt | ast.expr, what: str) -> UsageError:
        file = os.path.basename(self.function.__code__.co_filename)
        name = self.function.__qualname__
        return UsageError(
            what, found=ast.unparse(node).partition("\n")[0], where=f"{file}:{node.lineno}, {name}"
        )

    # Statements. Each says whether what follows it can be reached.

    def block(self, statements: list[ast.stmt]) -> bool:
        goes_on = True
        for statement in statements:
            goes_on = self.statement(statement) and goes_on
        return goes_on

    def statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.Expr(ast.Constant(str())) | ast.Pass():
                return True
            case ast.Expr(ast.Call() as call) if self.type_of(call) == "none":
                return True
            case ast.Assign([target], value):
                self.assign(target, self.type_of(value))
                return True
            case ast.AugAssign(target, operator, value):
                old: Any = ast.copy_location(ast.parse(ast.unparse(target), mode="eval").body, target)
                found = self.arithmetic(node, operator, self.type_of(old), self.type_of(value))
                self.assign(target, found)
                return True
            case ast.If(test, body, orelse):
                self.require(test, "bool")
                return self.branches(body, orelse)
            case ast.While(test, body, []):
                self.require(test, "bool")
                self.branches(body, [])
                return True
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), bounds, []), body, []):
                for bound in bounds:
                    self.require(bound, "i64")
                self.loop(node, name, body)
                return True
            case ast.Return(value):
                self.give_back(node, "none" if value is None else self.type_of(value))
                return False
            case ast.Break() | ast.Continue():
                return False
        raise self.refusal(node, "a statement that kernels do not have")

    def branches(self, body: list[ast.stmt], orelse: list[ast.stmt]) -> bool:
        before = set(self.assigned)
        ways = []
        for branch in (body, orelse):
            self.assigned = set(before)
            if self.block(branch):
                ways.append(self.assigned)
        self.assigned = set.intersection(*ways) if ways else before
        return bool(ways)

    def loop(self, node: ast.For, name: str, body: list[ast.stmt]) -> None:
        before = set(self.assigned)
        self.declare(node, name, "i64")
        self.block(body)
        self.assigned = before

    def assign(self, target: ast.expr, found: Type) -> None:
        match target, found:
            case ast.Name(name), str():
                if found in ("none", "length") or found.endswith(("[]", "!")):
                    raise self.refusal(target, f"a name stands for a number, not for {found}")
                self.declare(target, name, found)
            case ast.Tuple(names), tuple() if len(names) == len(found):
                for each, kind in zip(names, found, strict=True):
                    self.assign(each, kind)
            case ast.Subscript(), _:
                kind = self.type_of(target)
                assert isinstance(target, ast.Subscript)
                if not str(self.type_of(target.value)).endswith("!"):
                    raise self.refusal(target, "the signature does not say that this array is written ('!')")
                if kind != found:
                    raise self.refusal(target, f"{found} is stored as {kind}: convert it")
            case _:
                raise self.refusal(target, "no assignment that kernels have")

    def declare(self, node: ast.stmt | ast.expr, name: str, found: Type) -> None:
        if self.types.setdefault(name, found) != found:
            raise self.refusal(node, f"{name} is {self.types[name]} and becomes {found}")
        self.assigned.add(name)

    def give_back(self, node: ast.stmt | ast.expr, found: Type) -> None:
        if self.returned not in (None, found):
            raise self.refusal(node, f"{found} is returned here, and {self.returned} elsewhere")
        self.returned = found

    def require(self, node: ast.expr, expected: Type) -> None:
        found = self.type_of(node)
        if found != expected:
            raise self.refusal(node, f"{expected} is needed here, and this is {found}")

    # Expressions.

    def type_of(self, node: ast.expr) -> Type:
        match node:
            case ast.Constant(bool()):
                return "bool"
            case ast.Constant():
                raise self.refusal(node, "a bare literal: give it a type")
            case ast.Name(name):
                return self.name(node, name)
            case ast.BinOp(left, operator, right):
                return self.arithmetic(node, operator, self.type_of(left), self.type_of(right))
            case ast.UnaryOp(operator, operand):
                return self.unary(node, operator, self.type_of(operand))
            case ast.BoolOp(_, values):
                for each in values:
                    self.require(each, "bool")
                return "bool"
            case ast.Compare(left, operators, others):
                return self.comparison(node, operators, [self.type_of(each) for each in (left, *others)])
            case ast.IfExp(test, body, orelse):
                self.require(test, "bool")
                return self.same(node, [self.type_of(body), self.type_of(orelse)])
            case ast.Subscript(value, index):
                return self.element(node, self.type_of(value), self.type_of(index))
            case ast.Call(ast.Name(name), arguments, []):
                return self.call(node, name, arguments)
            case ast.Tuple(elements):
                return tuple(self.type_of(each) for each in elements)
        raise self.refusal(node, "an expression that kernels do not have")

    def name(self, node: ast.expr, name: str) -> Type:
        if name in self.function.__code__.co_varnames:
            if name not in self.assigned:
                raise self.refusal(node, f"{name} is not assigned on every way to here")
            return self.types[name]
        value = self.function.__globals__.get(name)
        if isinstance(value, np.generic) and value.dtype in _NAMES:
            return _NAMES[value.dtype]
        if isinstance(value, np.ndarray) and value.dtype in _NAMES and value.ndim == 1:
            if value.flags.writeable:
                raise self.refusal(node, f"{name} is a table: make it read-only")
            return f"{_NAMES[value.dtype]}[]"
        raise self.refusal(node, f"{name} is no typed constant")

    def same(self, node: ast.stmt | ast.expr, found: list[Type]) -> Type:
        if any(each != found[0] for each in found):
            raise self.refusal(node, f"operands of different types, {' and '.join(map(str, found))}")
        return found[0]

    def arithmetic(self, node: ast.stmt | ast.expr, operator: ast.operator, left: Type, right: Type) -> Type:
        found = self.same(node, [left, right])
        if not isinstance(operator, _ARITHMETIC):
            raise self.refusal(node, "an operator that kernels do not have")
        if found not in _WIDE:
            raise self.refusal(node, f"arithmetic on {found}: only i64 and u64 are the same everywhere")
        return found

    def unary(self, node: ast.stmt | ast.expr, operator: ast.unaryop, found: Type) -> Type:
        allowed: tuple[Type, ...] = {
            ast.Not: ("bool",),
            ast.Invert: _WIDE,
            ast.USub: ("i64", *_FLOATS),
        }.get(type(operator), ())
        if found not in allowed:
            raise self.refusal(node, f"this operator is not for {found}")
        return found

    def comparison(self, node: ast.stmt | ast.expr, operators: list[ast.cmpop], found: list[Type]) -> Type:
        kind = self.same(node, found)
        if not all(isinstance(each, _COMPARISONS) for each in operators):
            raise self.refusal(node, "an operator that kernels do not have")
        if kind != "bool" and kind not in SCALARS:
            raise self.refusal(node, f"a comparison of {kind}")
        return "bool"

    def element(self, node: ast.stmt | ast.expr, array: Type, index: Type) -> Type:
        if not isinstance(array, str) or not array.endswith(("[]", "[]!")):
            raise self.refusal(node, f"{array} has no elements")
        if index not in _WIDE:
            raise self.refusal(node, f"an index is i64 or u64, and this is {index}")
        return array.partition("[")[0]

    def call(self, node: ast.expr, name: str, arguments: list[ast.expr]) -> Type:
        value = self.function.__globals__.get(name)
        if isinstance(value, type) and value in _CONSTRUCTORS and len(arguments) == 1:
            return self.conversion(node, _CONSTRUCTORS[value], arguments[0])
        found = [self.type_of(each) for each in arguments]
        if isinstance(value, types.FunctionType):
            if value not in called(self.function).values():
                raise self.refusal(node, f"{name} is no function of a kernel module")
            return self.checked.result(value, tuple(found))
        if value is None and name in ("min", "max") and len(found) > 1 and found[0] in _WIDE:
            return self.same(node, found)
        if value is None and name == "len" and len(found) == 1 and str(found[0]).endswith(("[]", "!")):
            return "length"
        raise self.refusal(node, f"a call of {name} with {', '.join(map(str, found))}")

    def conversion(self, node: ast.stmt | ast.expr, to: str, argument: ast.expr) -> Type:
        if isinstance(argument, ast.Constant) and type(argument.value) in (int, float):
            return to  # a literal with its type
        found = self.type_of(argument)
        if found in _FLOATS and to not in _FLOATS:
            raise self.refusal(node, f"{found} becomes {to}: out of range, each run does its own")
        if found not in SCALARS and found != "bool" and (found != "length" or to not in _WIDE):
            raise self.refusal(node, f"{found} becomes {to}")
        return to
