"""The one-stage weak family."""

from fractions import Fraction

from dalembert.methods.coefficients import Number, parameter
from dalembert.methods.tableau import WeakTableau

_HALF = Fraction(1, 2)


def srkw1(lam: Number = 0.5) -> WeakTableau:
    """SRKw1: one-stage weak method with a free parameter λ.

    Equations, with three-point Î_r:

        Y⁰ = y + ½h v(Y⁰) + λ Σ_r Î_r b_r(Y¹)
        Y¹ = y + (1−λ) h v(Y⁰) + ½ Σ_r Î_r b_r(Y¹)
        y' = y + h v(Y⁰) + Σ_r Î_r b_r(Y¹)

    Stages: 1 for the drift, 1 for all noises together, because b¹ = b³ = ½.
    Update: the weights are α = β = (1).

    Keeps: the Lagrange–d'Alembert structure, hence a symplectic map when the forces vanish, and
    momentum maps, for any number of noises. λ = ½ is the midpoint method with Î in the place of
    ΔW.
    Order: weak 1 for every kind of noise. On Langevin dynamics λ = ½ has no bias of the kinetic
    temperature, λ = 0 has one of size O(h).
    Cost: 4N nonlinear equations a step; two systems of 2N for λ = 0 or 1; 2N for λ = ½. The
    increments are bounded, so the equations have a solution for every small enough h.

    When to use: expectations and long-time statistics with several noises; λ = ½ unless the
    decoupled equations of λ = 0 or 1 matter.

    Reference: KrausTyranowski2021, SRKw1; WangHongXu2017.
    """
    lam = parameter("lam", lam)
    return WeakTableau(
        a0=[[_HALF]], b0=[[lam]],
        a1=[[1 - lam]], b1=[[_HALF]], b3=[[_HALF]],
        alpha=[1], beta=[1],
        name=f"srkw1({lam!r})",
    )  # fmt: skip
