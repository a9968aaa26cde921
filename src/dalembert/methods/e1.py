"""The four-stage explicit method E1."""

from fractions import Fraction as Fr

from dalembert.methods.tableau import ExplicitTableau


def e1() -> ExplicitTableau:
    """E1: four-stage explicit method that reads ΔZ = ∫ (W − W(t_k)) dt as well as ΔW.

    Equations:

        Y_i = y + h Σ_j A_ij v(Y_j) + Σ_r Σ_j (B1_ij ΔW_r + B2_ij ΔZ_r/h) b_r(Y_j)
        y'  = y + h Σ_i α_i v(Y_i)  + Σ_r Σ_i (g1_i ΔW_r + g2_i ΔZ_r/h) b_r(Y_i)

    Stages: 4, explicit.
    Update: α = (¼, ¾, −¾, ¾), g1 = (−½, 3/2, −¾, ¾), g2 = (3/2, −3/2, 0, 0).

    Keeps: no structure; energy and momentum drift.
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1. It is not of
    mean-square order 1.5: it meets the pathwise conditions for that, not those on the mean. Its
    gain is an error constant two to eight times smaller than Heun's.
    Cost: four evaluations of the drift and of every noise field a step, and a second normal
    variable a noise.

    When to use: as the yardstick of an explicit method that uses more of the path.

    Reference: BurrageBurrage1996.
    """
    return ExplicitTableau(
        A=[
            [0, 0, 0, 0],
            [Fr(2, 3), 0, 0, 0],
            [Fr(3, 2), Fr(-1, 3), 0, 0],
            [Fr(7, 6), 0, 0, 0],
        ],
        alpha=[Fr(1, 4), Fr(3, 4), Fr(-3, 4), Fr(3, 4)],
        B1=[
            [0, 0, 0, 0],
            [Fr(2, 3), 0, 0, 0],
            [Fr(1, 2), Fr(1, 6), 0, 0],
            [Fr(-1, 2), 0, Fr(1, 2), 0],
        ],
        g1=[Fr(-1, 2), Fr(3, 2), Fr(-3, 4), Fr(3, 4)],
        B2=[
            [0, 0, 0, 0],
            [0, 0, 0, 0],
            [Fr(-2, 3), 0, 0, 0],
            [Fr(1, 6), Fr(1, 2), 0, 0],
        ],
        g2=[Fr(3, 2), Fr(-3, 2), 0, 0],
        name="e1",
    )
