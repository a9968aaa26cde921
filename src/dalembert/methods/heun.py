"""Heun's method."""

from fractions import Fraction

from dalembert.methods.tableau import ExplicitTableau

_HALF = Fraction(1, 2)


def heun() -> ExplicitTableau:
    """Stochastic Heun method: the explicit trapezoidal rule.

    Equations:

        Y = y + h v(y) + Σ_r ΔW_r b_r(y)
        y' = y + ½h [v(y) + v(Y)] + ½ Σ_r ΔW_r [b_r(y) + b_r(Y)]

    Stages: 2, explicit; A = B1 = [0 0; 1 0].
    Update: α = g1 = (½, ½).

    Keeps: no structure; energy and momentum drift.
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1, weak 2 for
    additive noise.
    Cost: two evaluations of the drift and of every noise field a step.

    When to use: as the yardstick for the structured methods; for short runs.

    Reference: BurrageBurrage1996.
    """
    matrix = [[0, 0], [1, 0]]
    weights = [_HALF, _HALF]
    zero = [[0, 0], [0, 0]]
    return ExplicitTableau(
        A=matrix, alpha=weights, B1=matrix, g1=weights, B2=zero, g2=[0, 0], name="heun"
    )
