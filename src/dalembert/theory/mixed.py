"""One step of a method with the old position and the new momentum given.

The stage equations, written for the unknown stages as functions of (q_k, p_{k+1}), and what the
discrete variational principle needs from their solution. The derivatives of the stages come from
the implicit function theorem.

In a method for additive noise the stages are moved by kicks that depend on nothing but the
increments. It is a method for the drift alone, whose terms are taken where the kicks lead, and a
last kick.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept
from dalembert.methods import Method
from dalembert.methods.stages import DT, DW, Entry, Increment
from dalembert.noise import Increments
from dalembert.stepping.step import check_method
from dalembert.stepping.stepper import StepInfo
from dalembert.system import ALL, DRIFT_TERMS, NOISE_TERMS, System, Term
from dalembert.theory.elementary_weights import is_series
from dalembert.theory.solving import find_root, relative_size, trusted

POSITION_TERMS = ("H_p", "h_p")
MOMENTUM_TERMS = ("H_q", "F", "h_q", "f")
FORCE_TERMS = ("F", "f")


class Weights(NamedTuple):
    """The coefficients of a method's stage equations.

    They are arguments of what is compiled: all tableaus of one shape share it.

    Attributes:
        terms: of every term, a row for each stage, and a last one for the new state.
        kicks: of every term of additive noise and every increment: a number for each stage, and a
            last one for the new state.
    """

    terms: dict[Term, Any]
    kicks: dict[tuple[Term, Increment], Any]


class Generated(NamedTuple):
    """All that follows from (q_k, p_{k+1}).

    D1 and D2 are the derivatives of H_d, `slope` is ∂p_k/∂p_{k+1} by the stage equations
    if it was asked for: it takes as many solutions as there are degrees of freedom. `p_next` is the
    new momentum, before its projection if there are constraints.
    """

    H_d: Any
    D1: Any
    D2: Any
    F_minus: Any
    F_plus: Any
    q_next: Any
    p: Any
    slope: Any
    info: Any
    p_next: Any


@dataclass(frozen=True, eq=False)
class MixedStep:
    """The stage equations of one step, as equations for the stages given q_k and p_{k+1}."""

    system: System
    params: Any
    dt: Any
    weights: Weights
    increments: Increments

    def generate(self, q: Any, p_next: Any, with_slope: bool = False) -> Generated:
        """The discrete Hamiltonian with its derivatives, the forces, and the step."""
        kick_q, kick_p = (kick[-1] for kick in self._kicks(q))
        found = self._generate_before_kick(q, p_next - kick_p, with_slope)
        return found._replace(
            H_d=found.H_d + p_next @ kick_q,
            D2=found.D2 + kick_q,
            q_next=found.q_next + kick_q,
            p_next=p_next,
        )

    def _generate_before_kick(self, q: Any, p_next: Any, with_slope: bool) -> Generated:
        (Q, P), pull, info = jax.vjp(self.solve, q, p_next, has_aux=True)
        H_d, partial = jax.value_and_grad(self._hamiltonian, (0, 1, 2, 3))(q, p_next, Q, P)
        D1, D2 = pull(partial[2:])
        F_minus, F_plus = pull((self._weighted_forces(Q, P), jnp.zeros_like(P)))
        q_next = q + self._sum(POSITION_TERMS, Q, P)[-1]
        gain, back = jax.vjp(lambda Q, P: self._sum(MOMENTUM_TERMS, Q, P)[-1], Q, P)
        slope = None
        if with_slope:
            unit = jnp.eye(q.size, dtype=q.dtype)
            slope = unit - jax.vmap(lambda e: pull(back(e))[1])(unit)
        derivatives = (partial[0] + D1, partial[1] + D2)
        found = (H_d, *derivatives, F_minus, F_plus, q_next, p_next - gain, slope)
        return Generated(*trusted(found, info), info=info, p_next=p_next)

    def solve(self, q: Any, p_next: Any) -> tuple[tuple[Any, Any], StepInfo]:
        """The stages Q and P without their kicks, each of shape (stages, dim)."""
        stages = self.weights.terms["H_p", 0].shape[1]

        def split(u: Any) -> tuple[Any, Any]:
            Q, P = u.reshape(2, stages, -1)
            return Q, P

        def residual(u: Any) -> Any:
            Q, P = split(u)
            velocities, forces = self._sum(POSITION_TERMS, Q, P), self._sum(MOMENTUM_TERMS, Q, P)
            P_found = p_next[None, :] + forces[:-1] - forces[-1:]
            return jnp.concatenate([Q - q[None, :] - velocities[:-1], P - P_found]).ravel()

        def size(value: Any, change: Any) -> Any:
            (r_q, r_p), (c_q, c_p) = split(value), split(change)
            return jnp.maximum(relative_size(r_q, q, c_q), relative_size(r_p, p_next, c_p))

        guess = jnp.concatenate([jnp.tile(q, stages), jnp.tile(p_next, stages)])
        u, info = find_root(residual, size, guess, parts=2)
        return split(u), info

    def _sum(self, kinds: Sequence[str], Q: Any, P: Any) -> Any:
        """Σ increment · weights · terms for the stages and, last, for the new state."""
        total = jnp.zeros((Q.shape[0] + 1, Q.shape[1]), Q.dtype)
        for weights, values, _ in self._terms(kinds, Q, P):
            total = total + weights @ values
        return total

    def _hamiltonian(self, q: Any, p_next: Any, Q: Any, P: Any) -> Any:
        """H_d⁺ with the stages as arguments of their own."""
        H_d = p_next @ (q + self._sum(POSITION_TERMS, Q, P)[-1])
        for weights, velocity, (kind, i, *_) in self._terms(POSITION_TERMS, Q, P):
            assert isinstance(i, int), "no brackets in the methods that are taken here"
            H = hamiltonian(self.system, None if kind in DRIFT_TERMS else i)
            at = *self._kicked(Q, P), self.params, *self._told(i)
            energy = jax.vmap(H, (0, 0, *[None] * (len(at) - 2)))(*at)
            legendre = jnp.sum(P * velocity, axis=1) - energy
            H_d = H_d - weights[-1] @ legendre
        return H_d

    def _weighted_forces(self, Q: Any, P: Any) -> Any:
        """Σ increment · weight · force at every stage, shape (stages, dim)."""
        forces = self._terms(FORCE_TERMS, Q, P)
        return sum((w[-1][:, None] * force for w, force, _ in forces), jnp.zeros_like(Q))

    def _terms(self, kinds: Sequence[str], Q: Any, P: Any) -> list[tuple[Any, Any, Term]]:
        """Increment · weights and the values at the stages of every term that is not zero."""
        found = []
        for (kind, i, *_), table in self.weights.terms.items():
            if kind in kinds and self.system.term((kind, i)) is not None:
                told = self._told(i)
                increment = self.dt if kind in DRIFT_TERMS else self.increments.dW[i]
                at_stages = _at_stages(self.system.shared, (kind, i))
                values = at_stages(*self._kicked(Q, P), self.params, *told)
                found.append((table if told else increment * table, values, (kind, i)))
        return found

    def _told(self, number: Any) -> tuple[Any, ...]:
        """The increments of ALL noises, of which a term of them is a function."""
        return (self.increments.dW,) if number == ALL else ()

    def _kicked(self, Q: Any, P: Any) -> tuple[Any, Any]:
        kick_q, kick_p = self._kicks(Q[0])
        return Q + kick_q[:-1], P + kick_p[:-1]

    def _kicks(self, q: Any) -> tuple[Any, Any]:
        """What additive noise does to every stage and to the new state, (stages + 1, dim) each.

        The fields of the noise are the same everywhere: they are taken at rest in the origin.
        """
        rows = self.weights.terms["H_p", 0].shape[0]
        origin = jnp.zeros_like(q)
        kick_q = kick_p = jnp.zeros((rows, q.size), q.dtype)
        for (term, increment), numbers in self.weights.kicks.items():
            field = self.system.term(term)
            if field is None:
                continue
            value = increment.value(self.dt, self.increments)
            told, factor = ((value,), 1.0) if increment.is_joint else ((), value)
            kick = jnp.outer(numbers * factor, field(origin, origin, self.params, *told))
            if term[0] in POSITION_TERMS:
                kick_q = kick_q + kick
            else:
                kick_p = kick_p + kick
        return kick_q, kick_p


@kept
def _at_stages(system: System, term: Term) -> Callable[[Any, Any, Any], Any]:
    fun = system.term(term)
    assert fun is not None, "terms that are zero have been dropped"
    # Jitted only so that the term is traced once, however often it appears.
    w = (None,) if term[1] == ALL else ()
    return jax.jit(jax.vmap(fun, (0, 0, None, *w)))


def hamiltonian(system: System, noise: int | None) -> Callable[..., Any]:
    """H (noise None) or h_i as a function of (q, p, params), zero where the system has none.

    That of ALL noises is a function of (q, p, params, w).
    """
    fun = system.H if noise is None else system.h.fun if noise == ALL else (system.h or ())[noise]

    def value(q: Any, p: Any, params: Any, *w: Any) -> Any:
        return jnp.asarray(0.0 if fun is None else system.evaluate(fun, q, p, params, *w), q.dtype)

    return value


def weights_of(system: System, method: Method) -> Weights:
    """The weights of a method's stage equations, as arrays."""
    rows = method.rows_for(system)
    stages = len(rows.q_rows) - 2
    terms: dict[Term, Any] = {}
    kicks: dict[tuple[Term, Increment], Any] = {}
    for kind in (rows.q_rows, rows.p_rows):
        for i, row in enumerate(kind[1:]):
            for entry in row:
                if _is_kick(method, entry):
                    key = entry.term, entry.increment
                    kicks.setdefault(key, np.zeros(stages + 1))[i] += entry.weight
                else:
                    table = terms.setdefault(entry.term, np.zeros((stages + 1, stages)))
                    table[i, entry.q_row - 1] += entry.weight
    return Weights(terms, {key: numbers for key, numbers in kicks.items() if numbers.any()})


def _is_kick(method: Method, entry: Entry) -> bool:
    """Whether an entry is the same wherever it is evaluated: additive noise."""
    return "additive noise" in method.requires and entry.term[0] not in DRIFT_TERMS


def check_variational(system: System, method: Method) -> None:
    """Refuse, with the reason, a method for which no discrete Hamiltonian is defined."""
    check_method(system, method)

    def is_known(entry: Entry) -> bool:
        kind, which = entry.term[:2]
        wanted = DW(which) if kind in NOISE_TERMS and isinstance(which, int) else DT
        return _is_kick(method, entry) or (entry.increment == wanted and entry.q_row > 0)

    entries = method.rows_for(system).entries
    is_whole = len(method.parts) <= 1
    if not (is_whole and is_series(method, min(system.noises, 2)) and all(map(is_known, entries))):
        raise ValueError(
            f"no discrete Hamiltonian is known here for {method.name}, a method of the family "
            f"{method.family}: take a MeanSquareTableau, a WeakTableau or an AdditiveTableau, e.g. "
            "da.midpoint(), or da.heun() as an explicit method to compare with."
        )
