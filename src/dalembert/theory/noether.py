"""Symmetries, their momentum maps, and what becomes of these in a run.

A symmetry is given by its infinitesimal generator ξ_Q(q), a function from positions to an array of
their shape. With the cotangent lift ξ_{T*Q} = (ξ_Q, ξ^p) and the momentum map J,

    J(q, p) = p·ξ_Q(q),   ξ^p = −∂J/∂q = −(Dξ_Q)ᵀ p
    dJ = (F·ξ_Q − dH·ξ_{T*Q}) dt + Σ (f_i·ξ_Q − dh_i·ξ_{T*Q}) ∘ dW_i

so J is constant if H and h_i are invariant and F and f_i orthogonal to ξ_Q. For a
Lagrange–d'Alembert method whose p_{k+1}·q_{k+1} − H_d⁺ is invariant, exactly

    J(q_{k+1}, p_{k+1}) − J(q_k, p_k) = F_d⁻·ξ_Q(q_k) + F_d⁺·ξ^p(q_{k+1}, p_{k+1}).

`KrausTyranowski2021`, sections 2.3 and 3.2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.methods import Method
from dalembert.precision import with_precision
from dalembert.system import System
from dalembert.theory.in_time import extended_generator, timeless
from dalembert.theory.mixed import check_variational
from dalembert.theory.paths import path_increments, state, walk_path
from dalembert.theory.variational import generate_all

Generator = Callable[[Any], Any]
"""An infinitesimal generator ξ_Q(q) on positions, written with jax.numpy; of the shape of q."""


@dataclass(frozen=True, eq=False)
class AffineGenerator:
    """ξ_Q(q) = A q + a; of positions of shape (N, d) every body moves in this way.

    Attributes:
        matrix: A, shape (d, d), where d is the last axis of q.
        offset: a, shape (d,), or the shape of q.
        name: what it is called in tables.
    """

    matrix: np.ndarray
    offset: np.ndarray
    name: str

    def __call__(self, q: Any) -> Any:
        q = jnp.asarray(q)
        size, own = len(self.matrix), self.offset.shape
        fits = q.shape == own if len(own) > 1 else q.ndim > 0 and q.shape[-1] == size
        if not fits:
            of_bodies = f", or (N, {size}) for N bodies" if len(own) == 1 else ""
            raise ValueError(
                f"{self.name} acts on positions of shape {own}{of_bodies}, not {q.shape}"
            )
        offset = jnp.broadcast_to(jnp.asarray(self.offset, q.dtype), q.shape)
        return q @ jnp.asarray(self.matrix.T, q.dtype) + offset


def translation(direction: Any) -> AffineGenerator:
    """Translations along a direction, ξ_Q = direction; J is the momentum in that direction.

    Of N bodies in d dimensions, q of shape (N, d), a direction of shape (d,) moves all of them, and
    J is their momentum together; one of shape (N, d) moves each in its own way.
    """
    a = np.asarray(direction, np.float64)
    if not a.ndim or not np.any(a):
        raise ValueError(
            "direction must be a non-zero vector of shape (d,), for each body, or of the shape of "
            f"q, not {direction!r}."
        )
    size = a.shape[-1]
    return AffineGenerator(np.zeros((size, size)), a, f"translation along {a.tolist()}")


def rotation(dim: int, i: int = 0, j: int = 1) -> AffineGenerator:
    """Rotations from axis i to axis j, ξ_Q = q_i e_j − q_j e_i; J = q_i p_j − q_j p_i.

    `dim` is the last axis of q: of N bodies, q of shape (N, d), all turn together about the origin,
    and J is the sum of theirs. For rotations in another plane give their skew matrix to `linear`.
    """
    if not (0 <= i < dim and 0 <= j < dim and i != j):
        raise ValueError(f"a rotation needs two of the axes 0, …, {dim - 1}, not {i} and {j}.")
    A = np.zeros((dim, dim))
    A[j, i], A[i, j] = 1.0, -1.0
    return AffineGenerator(A, np.zeros(dim), f"rotation from axis {i} to axis {j}")


def linear(matrix: Any) -> AffineGenerator:
    """Linear maps exp(λA), ξ_Q = A q, of each body if there are several; rotations if A is skew."""
    A = np.asarray(matrix, np.float64)
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(
            f"matrix must have shape (d, d), where d is the last axis of q, not {A.shape}."
        )
    return AffineGenerator(A, np.zeros(len(A)), "linear map")


def momentum_map(generator: Generator) -> Callable[[Any, Any], Any]:
    """J(q, p) = p·ξ_Q(q) as a function; it can be observed in a run."""

    def J(q: Any, p: Any) -> Any:
        return jnp.vdot(p, generator(q))

    return J


def cotangent_lift(generator: Generator) -> Callable[[Any, Any], tuple[Any, Any]]:
    """(q, p) → (ξ_Q(q), ξ^p(q, p)), the generator on phase space: ξ^p = −∂J/∂q."""
    along_q = jax.grad(momentum_map(generator), argnums=0)

    def lift(q: Any, p: Any) -> tuple[Any, Any]:
        return generator(q), -along_q(q, p)

    return lift


def flat_generator(system: System, generator: Generator) -> Generator:
    """A vector field on the positions of the system, of flat positions; others are refused."""
    if not callable(generator):
        raise TypeError(
            f"the generator must be a function of q, e.g. rotation(2), not {generator!r}."
        )
    with jax.enable_x64(True):
        try:
            shape = jax.eval_shape(generator, jax.ShapeDtypeStruct(system.shape, np.float64)).shape
        except Exception as error:
            raise TypeError(
                f"the generator failed on positions of shape {system.shape}, those of "
                f"{system.name!r}: {type(error).__name__}: {str(error).splitlines()[0]}"
            ) from error
    if shape != system.shape:
        raise ValueError(
            f"the generator must return a vector of shape {system.shape}, like the positions of "
            f"{system.name!r}, but it returns shape {shape}."
        )
    if len(shape) == 1:
        return generator
    return lambda q: generator(system.shaped(q)).reshape(-1)


def _timeless(
    system: System, start: Any, generator: Generator
) -> tuple[System, tuple[Any, Any], Generator]:
    """A system without time, its start and generator: those given, or extended ones at t = 0."""
    if not system.time:
        return system, start, generator
    extended, *states = timeless(system, 0.0, *state(system, start))
    return extended, (states[0], states[1]), extended_generator(system, generator)


@dataclass(frozen=True, eq=False)
class MomentumRun:
    """J along one path; `str()` says how far it moved.

    Attributes:
        t: times, shape (steps + 1,).
        momentum: J at these times.
        residual: largest relative residual of a stage equation on the way.
        converged: whether every step was solved.
    """

    t: np.ndarray
    momentum: np.ndarray
    residual: float
    converged: bool

    @property
    def drift(self) -> float:
        """The largest |J(t) − J(0)|."""
        return float(np.max(np.abs(self.momentum - self.momentum[0])))

    def __str__(self) -> str:
        start, end = self.momentum[0], self.momentum[-1]
        text = f"J = {start:.12g} at t = 0, {end:.12g} at t = {self.t[-1]:g}"
        text += f"; largest change {self.drift:.1e} in {len(self.t) - 1} steps"
        return text if self.converged else text + " (some steps were NOT solved)"


def momentum_along(
    system: System,
    method: Method,
    start: tuple[Any, Any],
    generator: Generator,
    dt: float,
    steps: int | None = None,
    seed: int = 0,
    increments: Any = None,
) -> MomentumRun:
    """The momentum map along one path of a method.

    Where J is conserved in exact arithmetic, what is left is rounding: a random walk of about
    1e−16 √steps, and a part that grows with the number of steps itself, 1e−19 to 4e−18 a step
    for |q|, |p| ≈ 1, because roundings and what Newton's method leaves of an implicit stage do
    not quite average out. After 10⁴ steps the first, after 10⁶ the second is the larger.

    Args:
        system: what to simulate.
        method: e.g. `da.midpoint()`.
        start: (q0, p0), each of shape (dim,).
        generator: of the symmetry.
        dt: step size, > 0.
        steps: number of steps, if the increments are to be drawn.
        seed: of the drawn increments.
        increments: known ones instead: dW of shape (steps, noises), or an `Increments` record.

    Paths of a driven system begin at t = 0, as those of runs.
    """
    system, start, generator = _timeless(system, start, flat_generator(system, generator))
    record = path_increments(system, method, dt, steps, seed, increments)
    path = walk_path(system, method, start, dt, record)
    momentum = with_precision(jax.jit(jax.vmap(momentum_map(generator))), path.q, path.p)
    return MomentumRun(
        t=dt * np.arange(len(path.q)),
        momentum=np.asarray(momentum),
        residual=float(np.max(np.asarray(path.info.residual))),
        converged=bool(np.all(np.asarray(path.info.converged))),
    )


@dataclass(frozen=True, eq=False)
class MomentumBalance:
    """The discrete balance of a momentum map at every step of a path.

    Attributes:
        change: J(q_{k+1}, p_{k+1}) − J(q_k, p_k), shape (steps,).
        supplied: F_d⁻·ξ_Q(q_k) + F_d⁺·ξ^p(q_{k+1}, p_{k+1}), shape (steps,).
        scale: |p_k||ξ_Q(q_k)| + |p_{k+1}||ξ_Q(q_{k+1})|, what their rounding is relative to.
    """

    change: np.ndarray
    supplied: np.ndarray
    scale: np.ndarray

    @property
    def residual(self) -> np.ndarray:
        """change − supplied, shape (steps,)."""
        return self.change - self.supplied

    @property
    def largest(self) -> float:
        """The largest |residual| relative to the scale; nan where H_d⁺ could not be found."""
        return float(np.max(np.abs(self.residual) / self.scale))

    def __str__(self) -> str:
        return (
            f"{len(self.change)} steps: J changes by up to {np.max(np.abs(self.change)):.1e} a "
            f"step, the forces supply up to {np.max(np.abs(self.supplied)):.1e}, and the two "
            f"differ by at most {np.max(np.abs(self.residual)):.1e} ({self.largest:.1e} relative)"
        )


def balance_residual(
    system: System,
    method: Method,
    start: tuple[Any, Any],
    generator: Generator,
    dt: float,
    steps: int | None = None,
    seed: int = 0,
    increments: Any = None,
) -> MomentumBalance:
    """The paper's discrete balance of J at every step of a path.

    It holds to rounding for Lagrange–d'Alembert methods if p_{k+1}·q_{k+1} − H_d⁺ is invariant.
    Runge–Kutta methods commute with affine maps, so for them that follows if ξ_Q is affine, H and
    h_i are invariant, and F and f_i equivariant: see `check_symmetry`, `.discrete`.

    Arguments as in `momentum_along`; for one step give increments of shape (1, noises). Methods
    that have no discrete Hamiltonian are refused with the reason.
    """
    system, start, generator = _timeless(system, start, flat_generator(system, generator))
    check_variational(system, method)
    record = path_increments(system, method, dt, steps, seed, increments)
    path = walk_path(system, method, start, dt, record)
    steps_of = (path.q[:-1], path.p[1:], dt, record)
    wanted = ("F_minus", "F_plus", "p_next")
    *forces, p_next = generate_all(system, method, *steps_of, *wanted, refuse=False)

    def along(q: Any, p: Any) -> tuple[Any, Any, Any, Any]:
        xi, xi_p = cotangent_lift(generator)(q, p)
        return xi, xi_p, jnp.dot(p, xi), jnp.sqrt(jnp.dot(p, p) * jnp.dot(xi, xi))

    F_minus, F_plus = map(np.asarray, forces)
    xi, xi_p, J, size = map(np.asarray, with_precision(jax.jit(jax.vmap(along)), path.q, path.p))
    if system.constraint_count:
        # The last projection of momenta is along Dg, to which a symmetry of g is orthogonal.
        lifted = with_precision(jax.jit(jax.vmap(cotangent_lift(generator))), path.q[1:], p_next)
        xi_p = np.concatenate([xi_p[:1], np.asarray(lifted[1])])
    supplied = np.sum(F_minus * xi[:-1] + F_plus * xi_p[1:], axis=1)
    return MomentumBalance(np.diff(J), supplied, size[:-1] + size[1:])
