"""Rößler's method RS1."""

from fractions import Fraction

from dalembert.methods.rossler import rossler
from dalembert.methods.tableau import ExplicitWeakTableau


def rs1() -> ExplicitWeakTableau:
    """RS1: explicit weak method of order two for any number of noises.

    Equations: those of ``ExplicitWeakTableau``, with three-point I_k and mixed I_kl.

    Stages: 4 for the drift, 4 for each noise, 2 more for each noise when there are several. The
    drift stages 1, 2 and 4 are all y; H⁰₃ = y + h v(y) + Σ_l I_l [¼ b_l(Hˡ₁) + ¾ b_l(Hˡ₂)].
    Update: α = (0, 0, ½, ½), β1 = (⅛, ⅜, ⅜, ⅛), β2 = (0, −¼, ¼, 0).

    Keeps: no structure; energy and momentum drift.
    Order: weak 2 for every kind of noise. Without noise it is Heun's method.
    Cost: two evaluations of the drift, four of a single noise field, six of each of several.

    When to use: as the yardstick for weak methods; expectations over short times with several
    noises.

    Reference: Roessler2007.
    """
    half = Fraction(1, 2)
    return rossler(
        A0=[[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]],
        alpha=[0, 0, half, half],
        name="rs1",
    )
