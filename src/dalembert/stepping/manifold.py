"""What constraints make of phase space, and the projections to it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.dependence import Degree, degree
from dalembert.driven import Timed
from dalembert.stepping import residuals
from dalembert.stepping.block_solver import Solver
from dalembert.stepping.constraint_blocks import Blocks
from dalembert.stepping.locality import is_entrywise
from dalembert.stepping.multipliers import Way, solve_multipliers
from dalembert.stepping.residuals import Report
from dalembert.stepping.sheets import is_quadratic, limit_of_starts
from dalembert.system import System, Term
from dalembert.traces import live

__all__ = ["Manifold", "Slopes", "is_straight", "left"]

VELOCITY: Term = ("H_p", 0)


class Slopes(NamedTuple):
    """Dg at some positions.

    Attributes:
        rows: Dgᵀ of all colours, m of shape (dim,): all of Dg, because blocks share nothing.
        steepness: the largest entry of Dg for every constraint, (c,).
    """

    rows: Any
    steepness: Any

    def floor(self, size: Any) -> Any:
        """What rounding of positions or velocities of a size may do to each constraint, (c,)."""
        return self.steepness * size + jnp.finfo(self.steepness.dtype).tiny


@dataclass(frozen=True, eq=False)
class Manifold:
    """g(q) = 0 and Dg(q) H_p(q, p) = 0: what constraints make of phase space."""

    system: System
    blocks: Blocks

    @cached_property
    def is_straight(self) -> bool:
        """Whether velocities are linear in momenta, and none is moved by momenta of others."""
        z = jax.ShapeDtypeStruct((self.system.dim,), np.float64)
        return is_straight(
            lambda p, q, params: self.velocity(q, p, params), self.blocks, z, z, self.system.params
        )

    @cached_property
    def is_quadratic(self) -> bool:
        """Whether constraints are, see `has_left`."""
        return is_quadratic(self.system)

    def slopes(self, q: Any, params: Any) -> Slopes:
        """Dg(q), and how steep every constraint is."""
        _, pull = jax.vjp(lambda q: self.system.constraint(q, params), q)
        blocks = self.blocks
        slopes = blocks.for_each(lambda u: pull(u)[0], blocks.colours(q.dtype))
        return Slopes(slopes, blocks.largest(slopes))

    def is_met(self, q: Any, params: Any) -> Any:
        """Whether positions are on g = 0 as well as those of a start have to be."""
        floor = self.slopes(q, params).floor(jnp.max(jnp.abs(q)))
        return left(self.system.constraint(q, params), floor) <= limit_of_starts(q.dtype)

    def velocity(self, q: Any, p: Any, params: Any) -> Any:
        """H_p, which is the same at all times."""
        fun = self.system.term(VELOCITY)
        assert fun is not None, "there is a Hamiltonian"
        return fun(q, p, Timed(jnp.zeros((), q.dtype), params) if self.system.time else params)

    def normal_velocity(self, q: Any, p: Any, params: Any) -> Any:
        """Dg(q) H_p(q, p), shape (c,)."""
        return self.along(q, self.velocity(q, p, params), params)

    def along(self, q: Any, v: Any, params: Any) -> Any:
        """Dg(q) v, shape (c,)."""
        return jax.jvp(lambda q: self.system.constraint(q, params), (q,), (v,))[1]

    def project_momentum(
        self, q: Any, p: Any, params: Any, solver: Solver, slopes: Slopes
    ) -> tuple[Any, Report]:
        """p − Dg(q)ᵀμ with velocities that are tangent to g = 0."""

        def end(change: Any) -> Any:
            return self.velocity(q, p + change, params)

        def miss(v: Any) -> Any:
            return self.along(q, v, params)

        floor = slopes.floor(jnp.max(jnp.abs(self.velocity(q, p, params))))
        way = Way(end, slopes.rows, self.is_straight)
        blind = 0 if way.is_straight else 1
        u, report = self.solve(way, end, miss, floor, solver, blind)
        change = -self.blocks.spread(slopes.rows, u)
        # Where velocities are linear, they are what has been looked at.
        missed = report.residual if way.is_straight else left(miss(end(change)), floor)
        return p + change, Report(report.iterations, missed)

    def project_position(
        self, q: Any, params: Any, solver: Solver = Solver.SAFE
    ) -> tuple[Any, Report]:
        """The point q − W Dgᵀλ with g = 0, where W is H_pp: the nearest but for curvature.

        From far away to what rounding leaves there, and from that point to what it leaves here.
        """
        near, _ = self._project_position(q, params, solver)
        return self._project_position(near, params, solver)

    def _project_position(self, q: Any, params: Any, solver: Solver) -> tuple[Any, Report]:
        def end(change: Any) -> Any:
            rest = jnp.zeros_like(q)
            return q + jax.jvp(lambda p: self.velocity(q, p, params), (rest,), (change,))[1]

        def miss(q: Any) -> Any:
            return self.system.constraint(q, params)

        slopes = self.slopes(q, params)
        floor = slopes.floor(jnp.max(jnp.abs(q)))
        way = Way(end, slopes.rows, self.is_straight)
        u, report = self.solve(way, end, miss, floor + jnp.abs(miss(q)), solver)
        point = end(-self.blocks.spread(slopes.rows, u))
        return point, Report(report.iterations, left(miss(point), floor))

    def solve(
        self, way: Way, closely: Any, miss: Any, floor: Any, solver: Solver, blind: int = 0
    ) -> tuple[Any, Report]:
        """Multipliers that lead where nothing is missed; `closely` is `way.end` for derivatives."""
        blocks, safely = self.blocks, solver in (Solver.SAFE, Solver.BOTH)

        def residual(u: Any) -> Any:
            return miss(closely(-blocks.spread(way.slopes, blocks.split(u))))

        wanted = residual if solver is Solver.BOTH else None
        return solve_multipliers(way, miss, floor, blocks, blind, safely, wanted)


def left(miss: Any, floor: Any) -> Any:
    """The largest of what constraints are missed by, relative to what rounding may do to each."""
    return residuals.worst_if_nan(jnp.max(jnp.abs(miss) / floor))


def is_straight(fun: Any, blocks: Blocks, *like: Any) -> bool:
    """Whether a function is linear in its first argument, entry by entry if there are blocks."""
    if degree(fun, like, (0,)) > Degree.AFFINE:
        return False
    return blocks.places.shape[1] == 1 or is_entrywise(live(fun, *like), *jax.tree.leaves(like))
