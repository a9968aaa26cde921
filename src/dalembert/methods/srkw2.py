"""The four-stage weak method of order two."""

from fractions import Fraction
from math import sqrt

from dalembert.methods.tableau import WeakTableau

_HALF, _QUARTER, _EIGHTH = Fraction(1, 2), Fraction(1, 4), Fraction(1, 8)
_THIRD, _SIXTH = Fraction(1, 3), Fraction(1, 6)
_ROOT_3 = sqrt(3)


def srkw2() -> WeakTableau:
    """SRKw2: four-stage weak method of order two for one noise.

    Equations, with one three-point Î:

        Y⁰_i = y + h Σ_j a⁰_ij v(Y⁰_j) + Î Σ_j b⁰_ij b₁(Y¹_j)
        Y¹_i = y + h Σ_j a¹_ij v(Y⁰_j) + Î Σ_j b¹_ij b₁(Y¹_j)
        y'   = y + ¼h Σ_i v(Y⁰_i) + ½ Î [b₁(Y¹₁) + b₁(Y¹₂)]

    Stages: 4 for the drift, 2 for the noise. The stages Y¹₃ and Y¹₄ enter nowhere; their free
    coefficients λ₁, λ₂, λ₃ are set to zero.
    Update: α = (¼, ¼, ¼, ¼), β = (½, ½, 0, 0).

    Keeps: the Lagrange–d'Alembert structure for one noise, hence a symplectic map when the forces
    vanish, and momentum maps. b³ = 0 breaks condition 4 of the class, so more than one noise is
    refused.
    Order: weak 2 for one noise.
    Cost: 12N nonlinear equations a step, 6N when the Hamiltonians are separable. The increments are
    bounded, so the equations have a solution for every small enough h.

    When to use: accurate expectations of systems driven by one noise, with large steps.

    Reference: KrausTyranowski2021, SRKw2; WangHongXu2017.
    """
    return WeakTableau(
        a0=[
            [_EIGHTH, 0, 0, 0],
            [_QUARTER, _EIGHTH, 0, 0],
            [_QUARTER, _QUARTER, _EIGHTH, 0],
            [_QUARTER, _QUARTER, _QUARTER, _EIGHTH],
        ],
        b0=[
            [Fraction(5, 6) - _ROOT_3 / 3, -_HALF, 0, 0],
            [-_SIXTH + _ROOT_3 / 3, _HALF, 0, 0],
            [_HALF, _HALF, 0, 0],
            [-_SIXTH, _HALF, 0, 0],
        ],
        a1=[
            [-_SIXTH + _ROOT_3 / 6, _THIRD - _ROOT_3 / 6, 0, _THIRD],
            [_HALF, 0, 0, 0],
            [0, 0, 0, 0],
            [0, 0, 0, 0],
        ],
        b1=[
            [_QUARTER, _QUARTER - _ROOT_3 / 6, 0, 0],
            [_QUARTER + _ROOT_3 / 6, _QUARTER, 0, 0],
            [0, 0, 0, 0],
            [0, -_HALF, 0, 0],
        ],
        b3=[[0] * 4] * 4,
        alpha=[_QUARTER] * 4,
        beta=[_HALF, _HALF, 0, 0],
        name="srkw2",
        max_noises=1,
    )
