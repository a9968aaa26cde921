"""The stochastic midpoint method."""

from fractions import Fraction

from dalembert.methods.tableau import MeanSquareTableau

_HALF = Fraction(1, 2)


def midpoint() -> MeanSquareTableau:
    """Stochastic midpoint method.

    Equations: one implicit stage, the middle of the step.

        Y = (y + y')/2
        y' = y + h v(Y) + Σ_r ΔW_r b_r(Y)

    Stages: 1, Y = (Q, P); all six matrices are (½).
    Update: all four weights are (1), so y' = 2Y − y.

    Keeps: the Lagrange–d'Alembert structure, hence a symplectic map when the forces vanish,
    momentum maps, every quadratic invariant, and every Gaussian invariant measure of linear
    systems with additive noise.
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1, with h²
    accuracy when the noise vanishes.
    Cost: 2N nonlinear equations a step, N when the Hamiltonians are separable. ΔW may need to be
    truncated, since large increments can leave the equations without a solution.

    When to use: the default for structure-preserving runs.

    Reference: KrausTyranowski2021, stochastic midpoint method; MilsteinRepinTretyakov2002;
    MaDing2015.
    """
    half = [[_HALF]]
    return MeanSquareTableau(
        a=half, a_bar=half, a_hat=half, b=half, b_bar=half, b_hat=half,
        alpha=[1], alpha_hat=[1], beta=[1], beta_hat=[1],
        name="midpoint",
    )  # fmt: skip
