"""The stochastic Störmer–Verlet method."""

from fractions import Fraction

from dalembert.methods.tableau import MeanSquareTableau

_HALF = Fraction(1, 2)


def stormer_verlet() -> MeanSquareTableau:
    """Stochastic Störmer–Verlet method.

    Equations: half a kick, a drift, half a kick, noise treated like the drift.

        P  = p + ½h [−H_q + F](q, P) + ½ Σ_r ΔW_r [−h_r,q + f_r](q, P)
        q' = q + ½h [H_p(q, P) + H_p(q', P)] + ½ Σ_r ΔW_r [h_r,p(q, P) + h_r,p(q', P)]
        p' = P + ½h [−H_q + F](q', P) + ½ Σ_r ΔW_r [−h_r,q + f_r](q', P)

    Stages: 2, Q₁ = q, Q₂ = q', P₁ = P₂ = P; a = b = [0 0; ½ ½], the other matrices [½ 0; ½ 0].
    Update: all four weights are (½, ½).

    Keeps: the Lagrange–d'Alembert structure, hence a symplectic map when the forces vanish, and
    momentum maps. With separable Hamiltonians and friction linear in p the phase-space volume
    shrinks at a rate that does not depend on the state (quasi-symplectic).
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1, with h²
    accuracy when the noise vanishes.
    Cost: N equations for P, then N for q'; the second are explicit for separable Hamiltonians,
    the first are linear when the forces are linear in p and explicit when they do not depend on
    p.

    When to use: separable Hamiltonians, Langevin dynamics, large systems. Not with large
    multiplicative noise: its second moments blow up at smaller steps than those of the midpoint
    method.

    Reference: KrausTyranowski2021, stochastic Störmer–Verlet method; MaDing2015.
    """
    kick = [[_HALF, 0], [_HALF, 0]]
    drift = [[0, 0], [_HALF, _HALF]]
    weights = [_HALF, _HALF]
    return MeanSquareTableau(
        a=drift, a_bar=kick, a_hat=kick, b=drift, b_bar=kick, b_hat=kick,
        alpha=weights, alpha_hat=weights, beta=weights, beta_hat=weights,
        name="stormer_verlet",
    )  # fmt: skip
