"""Steps of linear systems under noise of few values: one matrix per value, made before the run.

Where every term is affine in the state, a step with given increments is an affine map of it. The
three-point variable of one noise has three values, so three maps say all that there is to say.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept
from dalembert.dependence import Degree, degree
from dalembert.noise import Increments, Noise, Signs, ThreePoint, enumerate_three_point
from dalembert.precision import cast
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.expressions import components
from dalembert.stepping.residuals import Report, tolerance
from dalembert.stepping.stepper import StepInfo, Stepper
from dalembert.system import System

MAX_DIM = 2
"""Larger matrices have more entries to choose than a step has operations."""


class Maps(NamedTuple):
    """The step z' = M z + c of the state z = (q, p), for the values +, 0 and − of the noise.

    Attributes:
        matrix: M, shape (3, 2 dim, 2 dim).
        shift: c, shape (3, 2 dim), or None if it is zero.
    """

    matrix: Any
    shift: Any


@dataclass(frozen=True)
class Propagator:
    """A stepper whose parameters are the maps of another one, and whose increments are signs.

    There is nothing to report about a step: that has been done when the maps were made.
    """

    stepper: Stepper
    is_scalar = True
    is_implicit = False
    is_nonlinear = False
    noise = Signs()

    @property
    def system(self) -> System:
        return self.stepper.system

    @property
    def _kept(self) -> Any:
        return self.stepper._kept

    @property
    def dtype(self) -> np.dtype:
        return self.stepper.dtype

    @property
    def size(self) -> int:
        """About how many operations there are in a step."""
        return 3 * (2 * self.system.dim) ** 2

    def advance(
        self, q: Any, p: Any, dt: Any, increments: Increments, maps: Maps, *_: Any
    ) -> tuple[Any, Any, None]:
        """One step of one path, as a stepper takes it."""
        del dt
        sign = increments.dW[0]

        def chosen(plus: Any, zero: Any, minus: Any) -> Any:
            return jnp.where(sign > 0, plus, jnp.where(sign < 0, minus, zero))

        state, rows = [*q, *p], []
        matrix = components(maps.matrix)
        shift = None if maps.shift is None else components(maps.shift)
        for i in range(len(state)):
            entries = [chosen(*matrix[:, i, j]) for j in range(len(state))]
            products = [m * x for m, x in zip(entries, state, strict=True)]
            start = products.pop() if shift is None else chosen(*shift[:, i])
            rows.append(sum(products, start))
        dim = self.system.dim
        return tuple(rows[:dim]), tuple(rows[dim:]), None

    def advance_on(self, *given: Any) -> tuple[Any, Any, None, dict[Any, Any]]:
        """`advance`, and no terms for the next step: matrices have them all in them."""
        return *self.advance(*given), {}

    def terms_at(self, q: Any, p: Any, dt: Any, maps: Maps) -> dict[Any, Any]:
        """Nothing: matrices have all the terms in them."""
        return {}


def make_maps(stepper: Stepper, noise: Noise, dt: Any, params: Any) -> tuple[Maps, Report] | None:
    """The maps of a step, and a report on its equations; None if they do not say it all."""
    system = stepper.system
    if not (isinstance(noise, ThreePoint) and system.noises == 1 and system.dim <= MAX_DIM):
        return None
    if system.constraint_count:
        return None
    if system.time:
        return None  # a map for every step would say no less than the step
    if not (stepper.is_scalar and _is_affine(stepper)):
        return None
    dt, params = cast((np.asarray(dt), params), stepper.dtype)
    outcomes, _ = enumerate_three_point(1, float(dt))
    with jax.ensure_compile_time_eval():
        maps, report = jax.tree.map(np.asarray, _compiled(stepper)(dt, params, outcomes))
    if not report.residual <= tolerance(stepper.dtype) or not np.isfinite(maps.matrix).all():
        return None
    return (maps if maps.shift.any() else maps._replace(shift=None)), report


@kept
def _is_affine(stepper: Stepper) -> bool:
    """Whether every term of the system is affine in q and p together."""
    system = stepper.system
    z = jax.ShapeDtypeStruct((system.dim,), stepper.dtype)
    return all(
        degree(fun, system.term_like(term, z), (0, 1)) <= Degree.AFFINE
        for term in stepper.dependence
        if (fun := system.term(term)) is not None
    )


@kept
def _compiled(stepper: Stepper) -> Any:
    """A compiled function of the step size, the parameters and the outcomes of the noise."""
    dim, dtype = stepper.system.dim, stepper.dtype

    def image(dt: Any, params: Any, outcome: Increments, z: Any) -> tuple[Any, StepInfo]:
        q, p, info = stepper.advance(
            stepper.enter(z[:dim]), stepper.enter(z[dim:]), dt, outcome, params, Solver.FAST
        )
        return jnp.stack([*q, *p]), info

    def maps(dt: Any, params: Any, outcomes: Increments) -> tuple[Maps, Report]:
        def of(outcome: Increments) -> tuple[Any, Any, StepInfo]:
            step = partial(image, dt, params, outcome)
            matrix, _ = jax.jacfwd(step, has_aux=True)(jnp.zeros(2 * dim, dtype))
            points = jnp.concatenate([jnp.zeros((1, 2 * dim)), jnp.eye(2 * dim)]).astype(dtype)
            images, info = jax.vmap(step)(points)
            return matrix, images[0], info

        matrix, shift, info = jax.vmap(of)(outcomes)
        report = Report(jnp.max(info.iterations), jnp.max(info.residual))
        return Maps(matrix, shift), report

    return jax.jit(maps)
