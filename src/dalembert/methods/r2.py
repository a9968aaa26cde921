"""The two-stage explicit method R2."""

from fractions import Fraction

from dalembert.methods.tableau import ExplicitTableau


def r2() -> ExplicitTableau:
    """R2: two-stage explicit method whose second stage lies two thirds into the step.

    Equations:

        Y = y + ⅔ [h v(y) + Σ_r ΔW_r b_r(y)]
        y' = y + h [¼ v(y) + ¾ v(Y)] + Σ_r ΔW_r [¼ b_r(y) + ¾ b_r(Y)]

    Stages: 2, explicit; A = B1 = [0 0; ⅔ 0].
    Update: α = g1 = (¼, ¾).

    Keeps: no structure; energy and momentum drift.
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1.
    Cost: two evaluations of the drift and of every noise field a step.

    When to use: as a yardstick, in the place of Heun's method.

    Reference: BurrageBurrage1996.
    """
    matrix = [[0, 0], [Fraction(2, 3), 0]]
    weights = [Fraction(1, 4), Fraction(3, 4)]
    zero = [[0, 0], [0, 0]]
    return ExplicitTableau(
        A=matrix, alpha=weights, B1=matrix, g1=weights, B2=zero, g2=[0, 0], name="r2"
    )
