"""The mean-square methods as solvers of diffrax, so that its users switch one line.

    terms = dalembert.diffrax.terms(system, brownian_motion)
    diffrax.diffeqsolve(terms, dalembert.diffrax.Midpoint(), 0.0, 10.0, dt0=0.1, y0=(q, p))

The state is the pair (q, p), each of the shape of the system. Any Stratonovich solver of diffrax
takes the same terms. `args`, if given, are the parameters of the system in place of its own; so
solutions can be differentiated with respect to them. The Brownian motion has shape (noises,), or
the shape that was given as `noises`; methods that read ∫W dt, such as E1, need one with
`levy_area=diffrax.SpaceTimeLevyArea`.

Needs diffrax: `pip install '.[diffrax]'` in a copy of the source.
"""

from functools import partial
from operator import attrgetter
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

try:
    import diffrax
    import equinox as eqx
    import lineax
except ImportError as error:
    raise ImportError(
        "dalembert.diffrax needs diffrax: install it with  pip install diffrax"
    ) from error

from dalembert import methods
from dalembert.caches import kept_by
from dalembert.noise import Increments
from dalembert.stepping.step import check_method, step
from dalembert.system import ALL, NOISE_TERMS, System
from dalembert.theory.diagnosis import diagnose
from dalembert.theory.sampled import MOST_TERMS

__all__ = ["E1", "R2", "Dirk", "Heun", "MethodSolver", "Midpoint", "StormerVerlet", "terms"]

State = tuple[Any, Any]


class _Field(eqx.Module):
    """What both terms are made of: they carry the system to the solver."""

    system: System = eqx.field(static=True)

    def at(self, args: Any) -> System:
        return self.system if args is None else self.system.with_params(args)

    def time(self, t: Any) -> Any:
        return t if self.system.time else None


class _Drift(_Field):
    def __call__(self, t: Any, y: State, args: Any) -> State:
        return self.at(args).drift(*y, self.time(t))


class _Diffusion(_Field):
    shape: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, t: Any, y: State, args: Any) -> lineax.AbstractLinearOperator:
        system = self.at(args)
        if system.is_joint and max(system.dim, system.noises) > MOST_TERMS:
            # The function of all noises is the operator, and no matrix is made. Few solvers of
            # diffrax, such as ReversibleHeun, do not take such an operator.
            like = jax.ShapeDtypeStruct(self.shape, jnp.result_type(*y))
            return lineax.FunctionLinearOperator(partial(_kick, system, y, self.time(t)), like)
        fields = system.diffusion(*y, self.time(t))
        columns = tuple(rows.T.reshape(*system.shape, *self.shape) for rows in fields)
        return lineax.PyTreeLinearOperator(columns, jax.eval_shape(lambda: y))


def _kick(system: System, y: State, t: Any, w: Any) -> State:
    """Σ V_i(q, p) w_i."""
    q, p = (system.flat(name, x) for name, x in zip("qp", y, strict=True))
    velocity, *forces = (system.term((kind, ALL)) for kind in NOISE_TERMS)
    at = q, p, system.told(t, system.params), w.reshape(-1)
    dq = jnp.zeros_like(q) if velocity is None else velocity(*at)
    dp = sum((force(*at) for force in forces if force), jnp.zeros_like(p))
    return system.shaped(dq), system.shaped(dp)


def terms(system: System, control: diffrax.AbstractPath) -> diffrax.MultiTerm:
    """The equations of a system, driven by a Brownian motion with one entry per noise."""
    if not isinstance(system, System):
        raise TypeError(f"system must be a da.System, not {type(system).__name__}.")
    if system.constraint_count:
        raise ValueError(
            f"{system.name!r} has constraints, which the solvers of diffrax know nothing of: use "
            "da.simulate with da.rattle() or da.g_baoab()."
        )
    given = getattr(control, "shape", None)
    shape: Any = given.shape if isinstance(given, jax.ShapeDtypeStruct) else (system.noises,)
    wanted = system.noise_shape or (int(system.noises),)
    if shape not in ((system.noises,), wanted):
        raise ValueError(
            f"the Brownian motion has shape {shape}: {system.name!r} needs {wanted}, "
            "one component per Wiener process"
        )
    drift, diffusion = _Drift(system), _Diffusion(system, shape)
    return diffrax.MultiTerm(diffrax.ODETerm(drift), diffrax.ControlTerm(diffusion, control))


class MethodSolver(diffrax.AbstractStratonovichSolver):
    """A mean-square method, yours too, as a solver.

    A step whose stage equations were not solved ends the solution with
    `diffrax.RESULTS.nonlinear_divergence`.
    """

    method: methods.Method = eqx.field(static=True)

    term_structure: ClassVar = diffrax.MultiTerm[tuple[diffrax.ODETerm, diffrax.ControlTerm]]
    interpolation_cls: ClassVar = diffrax.LocalLinearInterpolation

    def __check_init__(self) -> None:
        if getattr(self.method, "convergence", None) != "mean-square":
            raise TypeError(
                f"{self.method!r} is no mean-square method: diffrax drives solvers along Brownian "
                "paths, which weak methods do not follow; write MethodSolver(da.midpoint()), say."
            )

    def strong_order(self, terms: Any) -> float | None:
        """The mean-square order to expect on the system, as `da.diagnose` says."""
        system = self._system(terms, None)
        return _strong_order(system, self.method)

    def init(self, terms: Any, t0: Any, t1: Any, y0: State, args: Any) -> None:
        self._system(terms, args)

    def step(
        self,
        terms: Any,
        t0: Any,
        t1: Any,
        y0: State,
        args: Any,
        solver_state: None,
        made_jump: Any,
    ) -> tuple[Any, ...]:
        system = self._system(terms, args)
        # Where t1 < t0, diffrax turns time around, and its control of the drift is negative.
        dt = terms.terms[0].contr(t0, t1)
        with_area = "dZ" in self.method.needs_for(system)
        increments = _increments(terms.terms[1], t0, t1, dt, with_area)
        t = t0 * getattr(terms.terms[0], "direction", 1) if system.time else None
        q, p, info = step(system, self.method, *y0, dt, increments, t=t)
        y1 = (jnp.asarray(q), jnp.asarray(p))
        results: Any = diffrax.RESULTS
        solved = results.where(info.converged, results.successful, results.nonlinear_divergence)
        return y1, None, {"y0": y0, "y1": y1}, None, solved

    def func(self, terms: Any, t0: Any, y0: State, args: Any) -> Any:
        return terms.vf(t0, y0, args)

    def _system(self, terms: Any, args: Any) -> System:
        system = _system(terms, args)
        check_method(system, self.method)
        missing = sorted(self.method.needs_for(system) - {"dW", "dZ"})
        if missing:
            raise ValueError(
                f"{self.method.name} needs the increments {missing} of {system.name!r}, which "
                "Brownian motions of diffrax do not have: take da.simulate, or another method"
            )
        return system


@kept_by(attrgetter("key"))
def _strong_order(system: System, method: methods.Method) -> float | None:
    # Diffrax may ask for it while it is traced.
    with jax.ensure_compile_time_eval():
        (verdict,) = diagnose(system, methods=[method]).methods
    return verdict.strong


def _system(terms: Any, args: Any) -> System:
    field = _unwrapped(terms.terms[0])
    if not isinstance(field, _Field):
        raise TypeError(
            "this solver needs to know the system, not its vector fields alone: "
            "build the terms by dalembert.diffrax.terms(system, brownian_motion)"
        )
    return field.at(args)


def _unwrapped(term: Any) -> Any:
    """The vector field of a term as it was given; diffrax wraps terms to turn time around."""
    while hasattr(term, "term"):
        term = term.term
    return getattr(term, "vector_field", None)


def _increments(term: Any, t0: Any, t1: Any, dt: Any, with_area: bool) -> Increments:
    """ΔW, and ΔZ = ∫(W − W_k) dt = h (H + ΔW/2) from the space-time Lévy area H.

    Back in time ΔW changes its sign, and so does the H that diffrax gives, which should not.
    """
    if not with_area:
        return Increments(term.contr(t0, t1).reshape(-1))
    levy = term.contr(t0, t1, use_levy=True)
    if not hasattr(levy, "H"):
        raise ValueError(
            "this method needs ∫W dt: give the Brownian motion levy_area=diffrax.SpaceTimeLevyArea"
        )
    W, H = levy.W.reshape(-1), levy.H.reshape(-1)
    return Increments(W, dt * (jnp.sign(dt) * H + W / 2))


def Midpoint() -> MethodSolver:
    """The midpoint method."""
    return MethodSolver(methods.midpoint())


def StormerVerlet() -> MethodSolver:
    """The Störmer–Verlet method."""
    return MethodSolver(methods.stormer_verlet())


def Dirk(lam: float = 0.5) -> MethodSolver:
    """The diagonally implicit method with parameter λ."""
    return MethodSolver(methods.dirk(lam))


def Heun() -> MethodSolver:
    """Heun's method, explicit and without structure."""
    return MethodSolver(methods.heun())


def R2() -> MethodSolver:
    """The explicit method R2."""
    return MethodSolver(methods.r2())


def E1() -> MethodSolver:
    """The explicit method E1, which needs ∫W dt."""
    return MethodSolver(methods.e1())
