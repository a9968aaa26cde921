"""Compile a function of scalars for many paths at a time: one path per lane of vector registers.

The function's trace has scalars only (`stepping/scalarise.py`), so every equation becomes one
vector instruction of LLVM, and a whole stretch of steps runs without leaving the registers. A loop
goes on while any lane needs it; lanes that have finished keep their values.

Every operation has the values that XLA gives it (but perhaps the other sign of a zero), also where
LLVM leaves them open: a whole number over zero, a shift beyond the width, a conversion of what does
not fit. Numbers below the least normal one, which XLA takes for zero, are kept.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from dalembert.elementary import rough_inverse
from dalembert.operations import OPERATIONS
from dalembert.traces import called, evaluate, facts, name_of

FLAGS = ("contract", "arcp")
"""What may be changed: products and sums may be fused, and a division by what is the same in every
step may become a product."""


class NoVectorFormError(Exception):
    """The function uses an operation that has no vector instruction here."""


def element_type(dtype: Any) -> ir.Type:
    """The LLVM type of one number."""
    kind = np.dtype(dtype)
    if kind.char in "df":
        return ir.DoubleType() if kind.char == "d" else ir.FloatType()
    if kind.kind not in "biu":
        raise NoVectorFormError(f"numbers of type {kind}")
    return ir.IntType(1 if kind == np.bool_ else 8 * kind.itemsize)


class Lanes:
    """Writes equations as vector instructions of one width into a function."""

    def __init__(self, builder: Any, width: int) -> None:
        self.builder, self.width = builder, width

    def type(self, dtype: Any) -> ir.VectorType:
        return ir.VectorType(element_type(dtype), self.width)

    def constant(self, value: Any, dtype: Any) -> ir.Constant:
        number = np.asarray(value, dtype)[()].item()
        return ir.Constant(self.type(dtype), [number] * self.width)

    def spread(self, scalar: Any) -> Any:
        """A number in all lanes."""
        vector = ir.Constant(ir.VectorType(scalar.type, self.width), ir.Undefined)
        one = self.builder.insert_element(vector, scalar, ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.width), [0] * self.width)
        return self.builder.shuffle_vector(one, vector, mask)

    def run(self, trace: Any, args: Sequence[Any]) -> list[Any]:
        """The results of a trace for vectors."""
        return evaluate(trace, args, self._equation, lambda x, kind: self.constant(x, kind.dtype))

    def _equation(self, eqn: Any, args: list[Any]) -> list[Any]:
        if any(v.aval.shape for v in (*eqn.invars, *eqn.outvars)):
            raise NoVectorFormError(f"{eqn.primitive.name} of arrays")
        name = name_of(eqn)
        if name == "while":
            return self._while(eqn, args)
        if eqn.primitive is rough_inverse.primitive:
            return [self.inverse(*args)]
        inner = OPERATIONS[eqn.primitive].code if eqn.primitive in OPERATIONS else called(eqn)
        if inner is not None:
            return self.run(inner, args)
        for v in (*eqn.invars, *eqn.outvars):
            element_type(v.aval.dtype)
        kind = np.dtype(eqn.invars[0].aval.dtype) if eqn.invars else None
        form, *words = facts(eqn).vector.split() or [""]
        if form not in FORMS:
            raise NoVectorFormError(name)
        return [FORMS[form](self, eqn, kind, *words, *args)]

    def _while(self, eqn: Any, args: list[Any]) -> list[Any]:
        conditions, bodies = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        cond_consts, body_consts = args[:conditions], args[conditions : conditions + bodies]
        start, b = args[conditions + bodies :], self.builder
        before, head = b.block, b.append_basic_block("while")
        body, after = b.append_basic_block("body"), b.append_basic_block("after")
        b.branch(head)
        b.position_at_end(head)
        carry = [b.phi(x.type) for x in start]
        for phi, x in zip(carry, start, strict=True):
            phi.add_incoming(x, before)
        (active,) = self.run(eqn.params["cond_jaxpr"], [*cond_consts, *carry])
        b.cbranch(self.any(active), body, after)
        b.position_at_end(body)
        new = self.run(eqn.params["body_jaxpr"], [*body_consts, *carry])
        for phi, x in zip(carry, new, strict=True):
            phi.add_incoming(b.select(active, x, phi), b.block)
        b.branch(head)
        b.position_at_end(after)
        return list(carry)

    def inverse(self, x: Any) -> Any:
        return self.quotient(ir.Constant(x.type, [1.0] * self.width), x)

    def quotient(self, x: Any, y: Any) -> Any:
        """x/y of floats."""
        # Of single precision LLVM would estimate 1/√y, and make NaN of it where y is 0 or infinite.
        is_double = x.type.element == ir.DoubleType()
        return self.builder.fdiv(x, y, flags=FLAGS if is_double else FLAGS[:1])

    def any(self, condition: Any) -> Any:
        """Whether a condition holds in any lane."""
        bits = self.builder.bitcast(condition, ir.IntType(self.width))
        return self.builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    def intrinsic(self, name: str, *args: Any) -> Any:
        """A function that LLVM knows, such as sqrt."""
        full = f"llvm.{name}.{self._suffix(args[0].type)}"
        return self.builder.call(self._function(full, args[0].type, args), args, fastmath=FLAGS)

    def saturated(self, x: Any, dtype: Any) -> Any:
        """Floats as whole numbers: towards zero, the nearest one there is, and zero for NaN."""
        target = self.type(dtype)
        name = "fptosi" if _is_signed(dtype) else "fptoui"
        full = f"llvm.{name}.sat.{self._suffix(target)}.{self._suffix(x.type)}"
        return self.builder.call(self._function(full, target, [x]), [x])

    def _suffix(self, kind: ir.VectorType) -> str:
        """How the names of LLVM's functions end for a type."""
        element = str(kind.element)
        names = {"double": "f64", "float": "f32"}
        return f"v{self.width}{names.get(element, element)}"

    def _function(self, name: str, result: Any, args: Sequence[Any]) -> Any:
        module = self.builder.module
        if name not in module.globals:
            ir.Function(module, ir.FunctionType(result, [x.type for x in args]), name)
        return module.globals[name]


def loop(
    b: ir.IRBuilder,
    begin: Any,
    end: Any,
    start: Sequence[Any],
    body: Callable[[Any, list[Any]], list[Any]],
) -> list[Any]:
    """for i in range(begin, end): values = body(i, values)"""
    before = b.block
    head, inside, after = (b.append_basic_block(name) for name in ("head", "inside", "after"))
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(begin.type)
    i.add_incoming(begin, before)
    values = [b.phi(x.type) for x in start]
    for phi, x in zip(values, start, strict=True):
        phi.add_incoming(x, before)
    b.cbranch(b.icmp_unsigned("<", i, end), inside, after)
    b.position_at_end(inside)
    new = body(i, list(values))
    for phi, x in zip(values, new, strict=True):
        phi.add_incoming(x, b.block)
    i.add_incoming(b.add(i, begin.type(1)), b.block)
    b.branch(head)
    b.position_at_end(after)
    return list(values)


def branch(
    b: ir.IRBuilder,
    condition: Any,
    yes: Callable[[list[Any]], list[Any]],
    no: Callable[[list[Any]], list[Any]],
    values: list[Any],
) -> list[Any]:
    """yes(values) if condition else no(values)"""
    ways, after = [b.append_basic_block(name) for name in ("yes", "no")], b.append_basic_block()
    b.cbranch(condition, *ways)
    results = []
    for block, way in zip(ways, (yes, no), strict=True):
        b.position_at_end(block)
        results.append((way(values), b.block))
        b.branch(after)
    b.position_at_end(after)
    chosen = [b.phi(x.type) for x in values]
    for new, block in results:
        for phi, x in zip(chosen, new, strict=True):
            phi.add_incoming(x, block)
    return chosen


def _is_float(kind: Any) -> bool:
    return np.issubdtype(kind, np.floating)


def _is_signed(kind: Any) -> bool:
    return np.issubdtype(kind, np.signedinteger)


def _arithmetic(
    lanes: Lanes, eqn: Any, kind: Any, of_floats: str, of_integers: str, x: Any, y: Any
) -> Any:
    if _is_float(kind):
        return getattr(lanes.builder, of_floats)(x, y, flags=FLAGS)
    return getattr(lanes.builder, of_integers)(x, y)


def _quotient(lanes: Lanes, eqn: Any, kind: Any, x: Any, y: Any) -> Any:
    """x/y; of whole numbers towards zero, −1 (all bits) over zero, and the least over −1 itself."""
    b = lanes.builder
    if _is_float(kind):
        return lanes.quotient(x, y)
    by_zero, one = b.icmp_unsigned("==", y, lanes.constant(0, kind)), lanes.constant(1, kind)
    if _is_signed(kind):
        is_least = b.icmp_signed("==", x, lanes.constant(np.iinfo(kind).min, kind))
        too_large = b.and_(is_least, b.icmp_signed("==", y, b.neg(one)))
        quotient = b.sdiv(x, b.select(b.or_(by_zero, too_large), one, y))
    else:
        quotient = b.udiv(x, b.select(by_zero, one, y))
    return b.select(by_zero, b.not_(lanes.constant(0, kind)), quotient)


def _comparison(lanes: Lanes, eqn: Any, kind: Any, sign: str, x: Any, y: Any) -> Any:
    b = lanes.builder
    if _is_float(kind):
        return b.fcmp_unordered(sign, x, y) if sign == "!=" else b.fcmp_ordered(sign, x, y)
    return (b.icmp_signed if _is_signed(kind) else b.icmp_unsigned)(sign, x, y)


def _extreme(lanes: Lanes, eqn: Any, kind: Any, sign: str, x: Any, y: Any) -> Any:
    """Maximum or minimum; a result is not a number if one of the operands is none."""
    b = lanes.builder
    chosen = b.select(_comparison(lanes, eqn, kind, sign, x, y), x, y)
    return b.select(b.fcmp_unordered("uno", x, x), x, chosen) if _is_float(kind) else chosen


def _negative(lanes: Lanes, eqn: Any, kind: Any, x: Any) -> Any:
    return lanes.builder.fneg(x) if _is_float(kind) else lanes.builder.neg(x)


def _convert(lanes: Lanes, eqn: Any, kind: Any, x: Any) -> Any:
    new = np.dtype(eqn.params["new_dtype"])
    target, b = lanes.type(new), lanes.builder
    if kind == new or x.type == target:
        return x
    if _is_float(kind) and _is_float(new):
        return (b.fpext if new.itemsize > kind.itemsize else b.fptrunc)(x, target)
    if _is_float(kind):
        if new == np.bool_:
            return b.fcmp_unordered("!=", x, lanes.constant(0, kind))
        return lanes.saturated(x, new)
    if _is_float(new):
        return (b.sitofp if _is_signed(kind) else b.uitofp)(x, target)
    if new == np.bool_:
        return b.icmp_unsigned("!=", x, lanes.constant(0, kind))
    if kind != np.bool_ and new.itemsize < kind.itemsize:
        return b.trunc(x, target)
    return (b.sext if _is_signed(kind) else b.zext)(x, target)


def _select(lanes: Lanes, eqn: Any, kind: Any, which: Any, *cases: Any) -> Any:
    if kind != np.bool_ or len(cases) != 2:
        raise NoVectorFormError("select among several cases")
    return lanes.builder.select(which, cases[1], cases[0])


def _integer_pow(lanes: Lanes, eqn: Any, kind: Any, x: Any) -> Any:
    exponent = eqn.params["y"]
    result, power = None, x
    for bit in reversed(bin(abs(exponent))[2:]):
        if bit == "1":
            result = power if result is None else _product(lanes, eqn, kind, result, power)
        power = _product(lanes, eqn, kind, power, power)
    one = lanes.constant(1, kind)
    if result is None:
        return one
    return result if exponent > 0 else lanes.quotient(one, result)


def _is_finite(lanes: Lanes, eqn: Any, kind: Any, x: Any) -> Any:
    size = lanes.intrinsic("fabs", x)
    return lanes.builder.fcmp_ordered("<", size, lanes.constant(np.inf, kind))


def _product(lanes: Lanes, eqn: Any, kind: Any, x: Any, y: Any) -> Any:
    return _arithmetic(lanes, eqn, kind, "fmul", "mul", x, y)


def _shift(lanes: Lanes, eqn: Any, kind: Any, name: str, x: Any, places: Any) -> Any:
    """A shift, after which nothing but zeros or signs is left if it is beyond the width."""
    b, width = lanes.builder, 8 * kind.itemsize
    is_inside = b.icmp_unsigned("<", places, lanes.constant(width, kind))
    if name == "ashr":
        return b.ashr(x, b.select(is_inside, places, lanes.constant(width - 1, kind)))
    return b.select(is_inside, getattr(b, name)(x, places), lanes.constant(0, kind))


def _bitcast(lanes: Lanes, eqn: Any, kind: Any, x: Any) -> Any:
    return lanes.builder.bitcast(x, lanes.type(eqn.params["new_dtype"]))


def _sign(lanes: Lanes, eqn: Any, kind: Any, x: Any) -> Any:
    b, zero, one = lanes.builder, lanes.constant(0, kind), lanes.constant(1, kind)
    if _is_float(kind):
        signed = lanes.intrinsic("copysign", one, x)
        return b.select(b.fcmp_ordered("!=", x, zero), signed, x)
    above = b.select(_comparison(lanes, eqn, kind, ">", x, zero), one, zero)
    return b.select(_comparison(lanes, eqn, kind, "<", x, zero), b.neg(one), above)


def _abs(lanes: Lanes, eqn: Any, kind: Any, x: Any) -> Any:
    if _is_float(kind):
        return lanes.intrinsic("fabs", x)
    is_less = _comparison(lanes, eqn, kind, "<", x, lanes.constant(0, kind))
    return lanes.builder.select(is_less, lanes.builder.neg(x), x)


def _pow(lanes: Lanes, eqn: Any, kind: Any, x: Any, y: Any) -> Any:
    exponent = np.dtype(eqn.invars[1].aval.dtype)
    if exponent != kind:
        y = (lanes.builder.sitofp if _is_signed(exponent) else lanes.builder.uitofp)(y, x.type)
    return lanes.intrinsic("pow", x, y)


FORMS: dict[str, Callable[..., Any]] = {
    "abs": _abs,
    "arithmetic": _arithmetic,
    "bitcast": _bitcast,
    "bits": lambda lanes, eqn, kind, name, *args: getattr(lanes.builder, name)(*args),
    "choice": _select,
    "comparison": _comparison,
    "conversion": _convert,
    "extreme": _extreme,
    "intrinsic": lambda lanes, eqn, kind, *args: lanes.intrinsic(eqn.primitive.name, *args),
    "is_finite": _is_finite,
    "negative": _negative,
    "pow": _pow,
    "power": _integer_pow,
    "quotient": _quotient,
    "rsqrt": lambda lanes, eqn, kind, x: lanes.inverse(lanes.intrinsic("sqrt", x)),
    "same": lambda lanes, eqn, kind, x: x,
    "shift": _shift,
    "sign": _sign,
    "square": lambda lanes, eqn, kind, x: _product(lanes, eqn, kind, x, x),
}
"""Forms of operations (`primitives.py`): (lanes, equation, type of the first operand, the words of
the form, operands) → result."""
