"""The solution of linear equations as one primitive of JAX, whatever way they are solved.

A solver that iterates, or one that chooses pivots, need not be differentiated or transposed: the
derivative of the solution of A x = b is that of A dx = db − dA x, and its transpose is the solution
of the transposed equations. Both are this primitive again, in every nesting of forward and reverse
mode.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Flat = list[Any]
Arguments = Sequence[Any]


class Linear(NamedTuple):
    """Linear equations as functions of lists of arrays that close over nothing traced.

    Attributes:
        product: (whether transposed, numbers, x) → A x or Aᵀ x, for the matrix of these numbers.
        solve: (whether transposed, numbers, b) → the x of which b is the product.
        numbers: how many numbers the matrix is made of.
        is_transposed: whether Aᵀ x = b is meant.
    """

    product: Callable[[bool, Flat, Flat], Flat]
    solve: Callable[[bool, Flat, Flat], Flat]
    numbers: int
    is_transposed: bool = False

    def parts(self, arguments: Arguments) -> tuple[Flat, Flat]:
        """The numbers of the matrix, and b."""
        return list(arguments[: self.numbers]), list(arguments[self.numbers :])

    def of_many(self, axes: Flat) -> "Linear":
        """Many problems at once: along these axes of their numbers, and in front of x and b."""

        def mapped(fun: Callable[[bool, Flat, Flat], Flat]) -> Callable[[bool, Flat, Flat], Flat]:
            return lambda is_transposed, *args: jax.vmap(partial(fun, is_transposed), (axes, 0))(
                *args
            )

        return self._replace(product=mapped(self.product), solve=mapped(self.solve))


def linear_root(linear: Linear, numbers: Flat, b: Flat) -> Flat:
    """The x with A x = b."""
    return _linear_root.bind(*numbers, *b, linear=linear)


def change(fun: Callable[[Flat], Flat], numbers: Flat, changes: Flat) -> Flat | None:
    """How results change with those numbers that do; None if none of them does."""
    moving = [i for i, tangent in enumerate(changes) if not isinstance(tangent, ad.Zero)]
    if not moving:
        return None

    def of_moving(*some: Any) -> Flat:
        all_numbers = dict(enumerate(numbers)) | dict(zip(moving, some, strict=True))
        return fun(list(all_numbers.values()))

    return jax.jvp(of_moving, [numbers[i] for i in moving], [changes[i] for i in moving])[1]


def _solve(*arguments: Any, linear: Linear) -> Flat:
    return linear.solve(linear.is_transposed, *linear.parts(arguments))


def _jvp(primals: Arguments, tangents: Arguments, *, linear: Linear) -> tuple[Flat, Flat]:
    x = _linear_root.bind(*primals, linear=linear)
    numbers, _ = linear.parts(primals)
    d_numbers, db = linear.parts(tangents)
    d_product = change(
        lambda some: linear.product(linear.is_transposed, some, x), numbers, d_numbers
    )
    db = [ad.instantiate_zeros(tangent) for tangent in db]
    if d_product is not None:
        db = [y - z for y, z in zip(db, d_product, strict=True)]
    return x, linear_root(linear, numbers, db)


def _transpose(cotangents: Arguments, *arguments: Any, linear: Linear) -> Flat:
    numbers, _ = linear.parts(arguments)
    other = linear._replace(is_transposed=not linear.is_transposed)
    return [None] * len(numbers) + linear_root(
        other, numbers, [ad.instantiate_zeros(x) for x in cotangents]
    )


def _batch(arguments: Arguments, axes: Arguments, *, linear: Linear) -> tuple[Flat, Flat]:
    """Many problems at once, which may share the numbers of their matrices."""
    pairs = list(zip(arguments, axes, strict=True))
    size = next(x.shape[axis] for x, axis in pairs if axis is not None)
    numbers, b = linear.parts(pairs)
    many = linear.of_many([axis for _, axis in numbers])
    front = [batching.bdim_at_front(x, axis, size) for x, axis in b]
    return linear_root(many, [x for x, _ in numbers], front), [0] * len(front)


def _types(*arguments: Any, linear: Linear) -> Flat:
    return linear.parts(arguments)[1]


_linear_root = Primitive("dalembert_linear_root")
_linear_root.multiple_results = True
_linear_root.def_impl(_solve)
_linear_root.def_abstract_eval(_types)
ad.primitive_jvps[_linear_root] = _jvp
ad.primitive_transposes[_linear_root] = _transpose
batching.primitive_batchers[_linear_root] = _batch
mlir.register_lowering(_linear_root, mlir.lower_fun(_solve, multiple_results=True))
