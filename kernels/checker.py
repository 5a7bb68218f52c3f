"""The types of a kernel: what gives its literals their types, and refuses what its runs could do differently.

The checker follows the types of a signature through a kernel and all that it calls. A literal takes the type of
what it meets: the other operand, the element it is stored to, the index or bound it is. NumPy does the same where a
kernel is interpreted; compilers would make ``u64 + 1`` a float, so they get a copy of each function whose literals
are typed constants (:func:`typed`). An integer of the module without a type is a literal with a name.

What is refused, and why:

* operands of two types: ``u64 - i64`` is a float in NumPy and an integer where it is compiled;
* a literal that nothing gives a type, as one that is assigned to a name, returned, or an argument; and one that the
  type cannot hold;
* arithmetic narrower than 64 bits: NumPy wraps ``u8 + u8`` where compiled code widens;
* floats made integers (out of range, each run does its own), and arithmetic on floats but ``+ - * /``, which round
  the same everywhere: nothing is compiled to fused or fast operations;
* a name with two types, or one that is not assigned on every way to where it is used;
* calls of anything but functions of kernel modules, typed constructors, ``len``, ``min`` and ``max``;
* statements and expressions that kernels have no use for: exceptions, strings, containers, closures.

What it cannot see: shifts by 64 or more, indices out of bounds, and an ``i64`` that does not fit the narrower
integers of the array that it is stored in.

Constants and functions of another kernel module are named by themselves or by their module: ``encoding.OK``.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import textwrap
import types
from typing import Any, Final, NamedTuple

import numpy as np

from bowstring.errors import UsageError
from bowstring.kernels.signature import Signature, called
from bowstring.kernels.types import SCALARS

# "u64", "u8[]", "u8[]!", "bool", "length" (of ``len``), "none", or a tuple of these.
Type = str | tuple["Type", ...]

_NAMES: Final = {np.dtype(scalar): name for name, scalar in SCALARS.items()} | {np.dtype(np.bool_): "bool"}
_CONSTRUCTORS: Final = {scalar: name for name, scalar in SCALARS.items()}
_WIDE: Final = ("i64", "u64")
_NARROW: Final = ("i8", "i16", "i32")
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
# What IEEE 754 says bit by bit, but for the bits of a NaN.
_FLOAT_ARITHMETIC: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div)
_COMPARISONS: Final = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def check(signature: Signature) -> None:
    """Check one signature of a kernel, and all functions that the kernel reaches."""
    parameters = ("i64", *map(str, signature.parameters))
    if _followed(signature.kernel, parameters).returned != "none":
        raise UsageError("a kernel returns nothing; it writes arrays", found=str(signature))


def typed(function: Any, arguments: tuple[Type, ...]) -> Any:
    """Return a copy of a function whose literals have the types that they take for arguments of some types.

    It has the lines of the function, and its globals with the constants besides. A function without literals is
    returned as it is.
    """
    return _followed(function, arguments).copy


class _Followed(NamedTuple):
    """What a function returns for arguments of some types, and its copy with typed literals."""

    returned: Type
    copy: Any


# None while it is followed.
_known: dict[tuple[Any, tuple[Type, ...]], _Followed | None] = {}


def _followed(function: Any, arguments: tuple[Type, ...]) -> _Followed:
    key = function, arguments
    if key not in _known:
        _known[key] = None
        try:
            _known[key] = _Function(function, arguments).follow()
        finally:
            if _known[key] is None:
                del _known[key]
    found = _known[key]
    if found is None:
        raise UsageError("a kernel calls itself", found=function.__qualname__)
    return found


class _Naming(ast.NodeTransformer):
    """Replaces literals, and what is named in another module, by names of the copy."""

    def __init__(self, names: dict[ast.AST, str]) -> None:
        self.names = names

    def visit(self, node: ast.AST) -> Any:
        if node not in self.names:
            return self.generic_visit(node)
        return ast.copy_location(ast.Name(self.names[node], ast.Load()), node)


@dataclasses.dataclass(slots=True)
class _Function:
    """One function, followed from its first statement to its last."""

    function: Any
    arguments: tuple[Type, ...]
    types: dict[str, Type] = dataclasses.field(default_factory=dict)
    assigned: set[str] = dataclasses.field(default_factory=set)
    # Literals, and what is named in other modules, by names of the copy ("u64(8)", "encoding.OK") and as it is.
    names: dict[ast.AST, str] = dataclasses.field(default_factory=dict)
    constants: dict[str, Any] = dataclasses.field(default_factory=dict)
    returned: Type | None = None

    def follow(self) -> _Followed:
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
        return _Followed(self.returned or "none", self.copy(tree) if self.names else self.function)

    def copy(self, tree: ast.FunctionDef) -> Any:
        """Return the function with typed constants for its literals."""
        module = ast.Module([_Naming(self.names).visit(tree)], [])
        names = {**self.function.__globals__, **self.constants}
        exec(compile(module, self.function.__code__.co_filename, "exec"), names)  # noqa: S102  our own source
        return names[tree.name]

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
                if isinstance(target, ast.Subscript) and self.is_literal(value):
                    self.give(value, self.type_of(target))
                    self.assign(target, self.type_of(target))
                else:
                    self.assign(target, self.type_of(value))
                return True
            case ast.AugAssign(target, operator, value):
                old: Any = ast.copy_location(ast.parse(ast.unparse(target), mode="eval").body, target)
                self.assign(target, self.arithmetic(node, operator, old, value))
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
                before = set(self.assigned)
                self.declare(node, name, "i64")
                self.block(body)
                self.assigned = before
                return True
            case ast.Return(value):
                found = "none" if value is None else self.type_of(value)
                if self.returned not in (None, found):
                    raise self.refusal(node, f"{found} is returned here, and {self.returned} elsewhere")
                self.returned = found
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
                if kind != found and (found != "i64" or kind not in _NARROW):
                    raise self.refusal(target, f"{found} is stored as {kind}: convert it")
            case _:
                raise self.refusal(target, "no assignment that kernels have")

    def declare(self, node: ast.stmt | ast.expr, name: str, found: Type) -> None:
        if self.types.setdefault(name, found) != found:
            raise self.refusal(node, f"{name} is {self.types[name]} and becomes {found}")
        self.assigned.add(name)

    def require(self, node: ast.expr, expected: Type) -> None:
        if self.is_literal(node):
            self.give(node, expected)
        elif (found := self.type_of(node)) != expected:
            raise self.refusal(node, f"{expected} is needed here, and this is {found}")

    # Expressions.

    def type_of(self, node: ast.expr) -> Type:
        match node:
            case ast.Constant(bool()):
                return "bool"
            case _ if self.value_of(node) is not None:
                raise self.refusal(node, "a literal that nothing here gives a type: write i64(…) or u64(…)")
            case ast.Name() | ast.Attribute():
                return self.name(node)
            case ast.BinOp(left, operator, right):
                return self.arithmetic(node, operator, left, right)
            case ast.UnaryOp(operator, operand):
                return self.unary(node, operator, self.type_of(operand))
            case ast.BoolOp(_, values):
                for each in values:
                    self.require(each, "bool")
                return "bool"
            case ast.Compare(left, operators, others):
                return self.comparison(node, operators, [left, *others])
            case ast.IfExp(test, body, orelse):
                self.require(test, "bool")
                return self.same(node, [self.type_of(body), self.type_of(orelse)])
            case ast.Subscript(value, index):
                return self.element(node, self.type_of(value), index)
            case ast.Call(ast.Name() | ast.Attribute() as callee, arguments, []):
                return self.call(node, callee, arguments)
            case ast.Tuple(elements):
                return tuple(self.type_of(each) for each in elements)
        raise self.refusal(node, "an expression that kernels do not have")

    def value_of(self, node: ast.expr) -> int | None:
        """Return the value of a literal: an integer, one of the module, a character's, or an expression of them."""
        match node:
            case ast.Constant(int(value)) if not isinstance(value, bool):
                return value
            case ast.Name() | ast.Attribute():
                value = self.looked_up(node)
                return value if type(value) is int else None
            case ast.Call(ast.Name("ord"), [ast.Constant(str(value))], []):
                return ord(value)
            case ast.UnaryOp(ast.USub(), operand) if self.value_of(operand) is not None:
                return int(eval(ast.unparse(node), self.function.__globals__))  # noqa: S307  our own source
            case ast.BinOp(left, _, right) if None not in (self.value_of(left), self.value_of(right)):
                return int(eval(ast.unparse(node), self.function.__globals__))  # noqa: S307  our own source
        return None

    def is_literal(self, node: ast.expr) -> bool:
        """Whether a value is a literal, or a choice of two."""
        if isinstance(node, ast.IfExp):
            return self.is_literal(node.body) and self.is_literal(node.orelse)
        return self.value_of(node) is not None

    def give(self, node: ast.expr, kind: Type) -> None:
        """Give a literal a type."""
        if isinstance(node, ast.IfExp):
            self.require(node.test, "bool")
            self.give(node.body, kind)
            self.give(node.orelse, kind)
        elif (value := self.value_of(node)) is not None:
            self.rename(node, self.constant(node, value, kind))

    def rename(self, node: ast.stmt | ast.expr, value: Any) -> None:
        """Have a node be a name of the copy."""
        name = f"{_NAMES[value.dtype]}({value})" if isinstance(value, np.generic) else ast.unparse(node)
        self.names[node] = name
        self.constants[name] = value

    def looked_up(self, node: ast.expr) -> Any:
        """Return what a name of the function's module stands for, or one of a module that is imported there."""
        match node:
            case ast.Name(name) if name not in self.function.__code__.co_varnames:
                return self.function.__globals__.get(name)
            case ast.Attribute(ast.Name() as owner, attribute):
                module = self.looked_up(owner)
                return getattr(module, attribute, None) if isinstance(module, types.ModuleType) else None
        return None

    def constant(self, node: ast.stmt | ast.expr, value: int, kind: Type) -> np.generic:
        dtype = np.dtype(SCALARS.get(str(kind), np.bool_))
        if dtype.kind not in "iu" or not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            raise self.refusal(node, f"{kind} does not hold this literal")
        return SCALARS[str(kind)](value)

    def operands(self, node: ast.stmt | ast.expr, given: list[ast.expr]) -> Type:
        """Return the one type of operands, which literals among them take."""
        others = [each for each in given if not self.is_literal(each)] or given
        found = self.same(node, [self.type_of(each) for each in others])
        for each in given:
            if self.is_literal(each):
                self.give(each, found)
        return found

    def name(self, node: ast.expr) -> Type:
        name = ast.unparse(node)
        if name in self.function.__code__.co_varnames:
            if name not in self.assigned:
                raise self.refusal(node, f"{name} is not assigned on every way to here")
            return self.types[name]
        value = self.looked_up(node)
        if isinstance(node, ast.Attribute):
            self.rename(node, value)
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

    def arithmetic(
        self, node: ast.stmt | ast.expr, operator: ast.operator, left: ast.expr, right: ast.expr
    ) -> Type:
        found = self.operands(node, [left, right])
        if not isinstance(operator, _FLOAT_ARITHMETIC if found in _FLOATS else _ARITHMETIC):
            raise self.refusal(node, f"an operator that kernels do not have for {found}")
        if found not in _WIDE and found not in _FLOATS:
            raise self.refusal(
                node, f"arithmetic on {found}: it differs between i64, u64, f32, f64 and the rest"
            )
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

    def comparison(
        self, node: ast.stmt | ast.expr, operators: list[ast.cmpop], given: list[ast.expr]
    ) -> Type:
        kind = self.operands(node, given)
        if not all(isinstance(each, _COMPARISONS) for each in operators):
            raise self.refusal(node, "an operator that kernels do not have")
        if kind != "bool" and kind not in SCALARS:
            raise self.refusal(node, f"a comparison of {kind}")
        return "bool"

    def element(self, node: ast.stmt | ast.expr, array: Type, index: ast.expr) -> Type:
        if not isinstance(array, str) or not array.endswith(("[]", "[]!")):
            raise self.refusal(node, f"{array} has no elements")
        if self.is_literal(index):
            self.give(index, "i64")
        elif (found := self.type_of(index)) not in _WIDE:
            raise self.refusal(node, f"an index is i64 or u64, and this is {found}")
        return array.partition("[")[0]

    def call(self, node: ast.expr, callee: ast.expr, arguments: list[ast.expr]) -> Type:
        name, value = ast.unparse(callee), self.looked_up(callee)
        if isinstance(value, type) and value in _CONSTRUCTORS and len(arguments) == 1:
            return self.conversion(node, _CONSTRUCTORS[value], arguments[0])
        found = [self.type_of(each) for each in arguments]
        if isinstance(value, types.FunctionType):
            if value not in called(self.function).values():
                raise self.refusal(node, f"{name} is no function of a kernel module")
            if isinstance(callee, ast.Attribute):
                self.rename(callee, value)
            return _followed(value, tuple(found)).returned
        if value is None and name in ("min", "max") and len(found) > 1 and found[0] in _WIDE:
            return self.same(node, found)
        if value is None and name == "len" and len(found) == 1 and str(found[0]).endswith(("[]", "!")):
            return "length"
        raise self.refusal(node, f"a call of {name} with {', '.join(map(str, found))}")

    def conversion(self, node: ast.stmt | ast.expr, to: str, argument: ast.expr) -> Type:
        if isinstance(argument, ast.Constant) and type(argument.value) is float:
            return to  # a literal with its type
        if to not in _FLOATS and (value := self.value_of(argument)) is not None:
            self.rename(node, self.constant(node, value, to))
            return to
        found = self.type_of(argument)
        if found in _FLOATS and to not in _FLOATS:
            raise self.refusal(node, f"{found} becomes {to}: out of range, each run does its own")
        if found not in SCALARS and found != "bool" and (found != "length" or to not in _WIDE):
            raise self.refusal(node, f"{found} becomes {to}")
        return to
