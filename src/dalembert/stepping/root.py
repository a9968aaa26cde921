"""The solution of equations as one primitive of JAX, with derivatives by the implicit theorem.

`lax.custom_root` does this too, but what it tells JAX about derivatives is forgotten when a scan is
linearised (jax 0.10 and 0.11): derivatives of derivatives would then go through the iterations, and
come out wrong or not at all. The derivative of this primitive is made of the primitive itself and
of others, so that it is right in every nesting of forward and reverse mode.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
from jax.core import eval_jaxpr
from jax.extend.core import Primitive, jaxpr_as_fun, unmapped_aval
from jax.interpreters import ad, batching, mlir

from dalembert.stepping.linear_root import Flat, Linear, change, linear_root


def implicit_root(
    residual: Callable[[Any], Any],
    guess: Any,
    solve: Callable[[Any], tuple[Any, Any]],
    linear_solve: Callable[[Callable[[Any], Any], Any], Any],
) -> tuple[Any, Any]:
    """The u for which residual(u) = 0, and what else its solver says, which has no derivative.

    Args:
        residual: the equations; they may depend on traced values from outside.
        guess: where to begin, and the form of u and of the residual.
        solve: guess → (u, what else there is to say), by any means.
        linear_solve: (product, b) → x with product(x) = b, by any means.
    """
    start, form = jax.tree.flatten(guess)
    equations, given, _ = _without_closure(residual, guess)
    solver, told, result = _without_closure(solve, guess)

    def product(is_transposed: bool, numbers: Flat, x: Flat) -> Flat:
        """The change of the residual for a change x of the unknowns, or the transpose of that."""
        given, u = numbers[: -len(x)], numbers[-len(x) :]

        def forward(x: Flat) -> Flat:
            return jax.jvp(partial(equations, given), [u], [x])[1]

        return jax.linear_transpose(forward, x)(x)[0] if is_transposed else forward(x)

    def solve_linear(is_transposed: bool, numbers: Flat, b: Flat) -> Flat:
        def of_form(x: Any) -> Any:
            return jax.tree.unflatten(form, product(is_transposed, numbers, jax.tree.leaves(x)))

        return jax.tree.leaves(linear_solve(of_form, jax.tree.unflatten(form, b)))

    types, tree = jax.tree.flatten(result)
    linear = Linear(product, solve_linear, len(given) + len(start))
    equation = Equation(solver, equations, linear, len(told), len(given), tuple(types))
    return jax.tree.unflatten(tree, _root.bind(*told, *given, *start, equation=equation))


class Equation(NamedTuple):
    """What is to be solved, as functions of lists of arrays that close over nothing traced.

    Attributes:
        solve: (numbers that it is told, guess) → unknowns and all else.
        residual: (numbers that it is given, unknowns) → residuals, as many.
        linear: the equations of small changes; its numbers are what is given, and the unknowns.
        told: how many numbers the solver is told.
        given: how many the residual is given.
        types: the types of what the solver returns.
    """

    solve: Callable[[Flat, Flat], Flat]
    residual: Callable[[Flat, Flat], Flat]
    linear: Linear
    told: int
    given: int
    types: tuple[Any, ...]

    def parts(self, arguments: Sequence[Any]) -> tuple[Flat, Flat, Flat]:
        """What the solver is told, what the residual is given, and the guess."""
        flat, end = list(arguments), self.told + self.given
        return flat[: self.told], flat[self.told : end], flat[end:]


def _without_closure(
    fun: Callable[[Any], Any], like: Any
) -> tuple[Callable[[Flat, Flat], Flat], Flat, Any]:
    """`fun` as a function of what it reads from outside and of a list; what it reads; types."""
    closed, result = jax.make_jaxpr(fun, return_shape=True)(like)
    # Traced again, because the first trace keeps what it has read, of which nothing may be kept.
    code = jax.make_jaxpr(partial(eval_jaxpr, closed.jaxpr))(closed.consts, *jax.tree.leaves(like))
    types = jax.tree.unflatten(jax.tree.structure(result), code.out_avals)
    return (lambda read, u: jaxpr_as_fun(code)(*read, *u)), closed.consts, types


def _solve(*arguments: Any, equation: Equation) -> Flat:
    told, _, guess = equation.parts(arguments)
    return equation.solve(told, guess)


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, equation: Equation
) -> tuple[Flat, Flat]:
    """residual(c, u) = 0 stays so if ∂residual/∂u [du] = −∂residual/∂c [dc]."""
    found = _root.bind(*primals, equation=equation)
    _, given, guess = equation.parts(primals)
    _, d_given, _ = equation.parts(tangents)
    u = found[: len(guess)]
    still = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in found]
    b = change(lambda some: equation.residual(some, u), given, d_given)
    if b is None:
        return found, still
    return found, [*linear_root(equation.linear, [*given, *u], [-x for x in b]), *still[len(u) :]]


def _batch(
    arguments: Sequence[Any], axes: Sequence[Any], *, equation: Equation
) -> tuple[Flat, Flat]:
    """Many problems at once; their unknowns and residuals have them in front."""
    pairs = zip(arguments, axes, strict=True)
    size = next(x.shape[axis] for x, axis in pairs if axis is not None)
    told, given, guess = equation.parts(axes)
    numbers = [*given, *[0] * len(guess)]
    many = equation._replace(
        solve=jax.vmap(equation.solve, (told, guess), axis_size=size),
        residual=jax.vmap(equation.residual, (given, 0)),
        linear=equation.linear.of_many(numbers),
        types=tuple(unmapped_aval(size, 0, x) for x in equation.types),
    )
    return _root.bind(*arguments, equation=many), [0] * len(many.types)


_root = Primitive("dalembert_root")
_root.multiple_results = True
_root.def_impl(_solve)
_root.def_abstract_eval(lambda *_, equation: equation.types)
ad.primitive_jvps[_root] = _jvp
batching.primitive_batchers[_root] = _batch
mlir.register_lowering(_root, mlir.lower_fun(_solve, multiple_results=True))
