"""Methods for systems with constraints g(q) = 0: steps between projections of momenta."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dalembert.methods.langevin import FlowOfLetter, LangevinSplitting, rows_of_flows
from dalembert.methods.mean_square import midpoint, stormer_verlet
from dalembert.methods.method import SYMPLECTIC, Convergence, Method, Orders, Promises
from dalembert.methods.stages import StageSystem
from dalembert.spelling import says_its_words

ON_THE_MANIFOLD = "all of it holds on the manifold g(q) = 0, Dg(q) H_p = 0, which no step leaves"


@dataclass(frozen=True)
class ProjectedMethod(Method):
    """A step of another method Φ between two projections of momenta, for systems with constraints.

        p̂ = p − Dg(q)ᵀλ      so that g(q') = 0
        (q', p̌) = Φ(q, p̂)    a step of the method as if there were no constraints
        p' = p̌ − Dg(q')ᵀμ     so that Dg(q') H_p(q', p') = 0

    On g = 0 both projections are symplectic, so that the step is if that of Φ is; it is symmetric
    if Φ is. With Störmer–Verlet it is RATTLE.

    Args:
        inner: the method Φ.
        name: what it is called.
        convergence: "mean-square", or "weak" to be driven by three-point variables; that of the
            inner method if it is not given.
    """

    inner: Method
    name: str = "my projected method"
    convergence: Convergence | None = None

    family = "projection"
    requires: ClassVar[frozenset[str]] = frozenset({"constraints"})

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Method) or self.inner.parts:
            raise TypeError(
                f"{self._who()}: inner must be a method without projections, such "
                f"as da.stormer_verlet(), not {self.inner!r}"
            )
        if self.inner.requires:
            raise ValueError(
                f"{self._who()}: {self.inner.name} asks for more than constraints "
                "leave of a system; take a mean-square or weak tableau, or da.g_baoab()"
            )
        if self.convergence is None:
            object.__setattr__(self, "convergence", self.inner.convergence)
        self._check_convergence()

    @property
    def shares_stages(self) -> bool:
        """Whether all noises act at the same stages."""
        return self.inner.shares_stages

    @property
    def stages(self) -> int:
        """Stages of the inner method."""
        return self.inner.stages

    @property
    def parts(self) -> tuple[tuple[Method, int], ...]:
        """The inner method, once."""
        return ((self.inner, 1),)

    def rows(self, noises: int) -> StageSystem:
        """Those of the inner method."""
        return self.inner.rows(noises)

    def check_noises(self, noises: int) -> None:
        """Raise ``ValueError`` if the inner method cannot take this number of noises."""
        self.inner.check_noises(noises)

    def promises(self) -> Promises:
        """Those of the inner method, on the manifold."""
        inner = self.inner.promises()
        # Multipliers act at the ends of a step alone: in between a path leaves the manifold.
        order, weak = (_at_most_one(x) for x in (inner.order, inner.weak_order))
        smooth = None if inner.without_noise is None else min(inner.without_noise, 2.0)
        notes = (*inner.notes, ON_THE_MANIFOLD)
        return replace(
            inner, order=order, weak_order=weak, without_noise=smooth, straight=None, notes=notes
        )

    def to_dict(self) -> dict[str, Any]:
        """The method and its inner one, in types that JSON knows."""
        return super().to_dict() | {"inner": self.inner.to_dict()}


def _at_most_one(orders: Orders | None) -> Orders | None:
    return orders and {kind: order and min(order, 1.0) for kind, order in orders.items()}


@dataclass(frozen=True)
class FlowStep(Method):
    """The flow of one letter of a splitting, between two projections."""

    flow: FlowOfLetter
    name: str = "flow"
    convergence: Convergence = "mean-square"

    family = "Langevin splitting"
    shares_stages = True
    stages = 1

    def rows(self, noises: int) -> StageSystem:
        """One row."""
        return rows_of_flows([self.flow], noises)


@dataclass(frozen=True)
class GeodesicSplitting(Method):
    """A splitting of Langevin equations with constraints: every flow is projected.

    Kicks (B), friction and noise (O) are followed by a projection of momenta. A drift (A) is so
    many steps of RATTLE without forces, which follow a geodesic. Letters as in
    ``LangevinSplitting``.
    """

    word: str = "BAOAB"
    geodesic_steps: int = 2
    name: str = "my geodesic splitting"
    convergence: Convergence = "mean-square"

    family = "geodesic splitting"
    shares_stages = True
    requires: ClassVar[frozenset[str]] = frozenset({"constraints", "Langevin equation"})

    def __post_init__(self) -> None:
        steps = self.geodesic_steps
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise ValueError(
                f"{self._who()}: geodesic_steps must be a whole number, at least 1, not {steps!r}"
            )
        _ = self.unconstrained

    @property
    def unconstrained(self) -> LangevinSplitting:
        """The same splitting for systems without constraints."""
        return LangevinSplitting(self.word, self.name, self.convergence)

    @property
    def stages(self) -> int:
        """Number of flows."""
        return len(self.word)

    @property
    def parts(self) -> tuple[tuple[Method, int], ...]:
        """One flow after the other; those of positions in so many steps."""
        found = []
        for flow in self.unconstrained.flows:
            repeats = self.geodesic_steps if flow.letter == "A" else 1
            # Equal drifts share what is compiled for them.
            number = flow.number if flow.letter == "O" else 1
            found.append(
                (FlowStep(FlowOfLetter(flow.letter, number, flow.count * repeats)), repeats)
            )
        return tuple(found)

    def rows(self, noises: int) -> StageSystem:
        """Those without constraints."""
        return self.unconstrained.rows(noises)

    def promises(self) -> Promises:
        """Those without constraints, but for the exact flow of positions."""
        promised = self.unconstrained.promises()
        notes = (
            "takes Langevin equations: H = T(p) + U(q), F = −γ p, and noise that is constant",
            *promised.notes[2:],
            ON_THE_MANIFOLD,
        )
        return replace(promised, structure=SYMPLECTIC, notes=notes)

    def __str__(self) -> str:
        return f"{self.name}: {self.family} {self.word}, {self.geodesic_steps} geodesic steps"


@says_its_words
def rattle() -> ProjectedMethod:
    """RATTLE with forces and noise: Störmer–Verlet between projections of momenta.

    Equations: those of ``ProjectedMethod`` with ``stormer_verlet``. For H = ½pᵀM⁻¹p + U(q),

        P  = p + ½h [−U_q + F](q, P) + ½ Σ_r ΔW_r [−h_r,q + f_r](q, P) − Dg(q)ᵀλ
        q' = q + h M⁻¹P,   g(q') = 0
        p' = P + ½h [−U_q + F](q', P) + ½ Σ_r ΔW_r [−h_r,q + f_r](q', P) − Dg(q')ᵀμ
        Dg(q') M⁻¹p' = 0

    Stages: 2, those of Störmer–Verlet.
    Update: the second kick, and the projection of momenta.

    Keeps: the constraints and their derivative to rounding; the Lagrange–d'Alembert structure on
    the manifold, hence a symplectic map of its cotangent bundle when the forces vanish, and
    momentum maps of symmetries of H and g.
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1, with h²
    accuracy when the noise vanishes.
    Cost: that of Störmer–Verlet, and Newton's method for the multipliers λ; μ follows from linear
    equations if H is quadratic in p. Both have the sparsity of the constraints.

    When to use: rods, rings and rigid molecules; paths, long runs.

    Reference: Andersen1983; HairerLubichWanner2006, section VII.1.
    """
    return ProjectedMethod(stormer_verlet(), "rattle")


@says_its_words
def weak_rattle() -> ProjectedMethod:
    """RATTLE driven by three-point variables.

    Equations: those of ``rattle`` with Î_r in the place of ΔW_r.

    Stages: 2, those of Störmer–Verlet.
    Update: as in ``rattle``.

    Keeps: what ``rattle`` keeps.
    Order: weak 1, with h² accuracy when the noise vanishes.
    Cost: that of ``rattle``. Increments are bounded, so that a step that is small enough always has
    a solution.

    When to use: expectations of systems with constraints.

    Reference: Andersen1983; KrausTyranowski2021.
    """
    return ProjectedMethod(stormer_verlet(), "weak_rattle", "weak")


@says_its_words
def projected_midpoint() -> ProjectedMethod:
    """The midpoint method with a symmetric projection to constraints.

    Equations: those of ``ProjectedMethod`` with ``midpoint``.

    Stages: 1, that of the midpoint method.
    Update: that of the midpoint method, and the projection of momenta.

    Keeps: the constraints and their derivative to rounding; the Lagrange–d'Alembert structure on
    the manifold, hence a symplectic map of its cotangent bundle when the forces vanish, and
    momentum maps of symmetries of H and g.
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1, with h²
    accuracy when the noise vanishes.
    Cost: the implicit equations of the midpoint method in every Newton step for the multipliers.

    When to use: stiff or not separable Hamiltonians with constraints.

    Reference: HairerLubichWanner2006, section VII.1.
    """
    return ProjectedMethod(midpoint(), "projected_midpoint")


@says_its_words
def g_baoab(geodesic_steps: int = 2) -> GeodesicSplitting:
    """Geodesic BAOAB: Langevin dynamics with constraints, by projected flows.

    Equations: those of ``GeodesicSplitting`` with the word BAOAB.

    Stages: 5 flows; each of the two drifts is ``geodesic_steps`` steps of RATTLE without forces.
    Update: the last kick's.

    Keeps: the constraints and their derivative to rounding; a symplectic map of the cotangent
    bundle of the manifold without friction.
    Order: weak 2; mean-square 1.
    Cost: two forces a step, and the multipliers of every flow.

    When to use: sampling with constraints, with large steps; its error in averages of positions is
    small.

    Reference: LeimkuhlerMatthews2016.
    """
    name = "g_baoab" if geodesic_steps == 2 else f"g_baoab({geodesic_steps})"
    return GeodesicSplitting("BAOAB", geodesic_steps, name)
