"""Rößler's method RS2."""

from fractions import Fraction as Fr

from dalembert.methods.rossler import rossler
from dalembert.methods.tableau import ExplicitWeakTableau


def rs2() -> ExplicitWeakTableau:
    """RS2: explicit weak method of order two for any number of noises, three without noise.

    Equations: those of ``ExplicitWeakTableau``, with three-point I_k and mixed I_kl.

    Stages: 4 for the drift, of which 3 enter, 4 for each noise, 2 more for each noise when there
    are several.
    Update: α = (¼, ¼, ½, 0), β1 = (⅛, ⅜, ⅜, ⅛), β2 = (0, −¼, ¼, 0).

    Keeps: no structure; energy and momentum drift.
    Order: weak 2 for every kind of noise; 3 when the noise vanishes.
    Cost: three evaluations of the drift, four of a single noise field, six of each of several.

    When to use: as RS1, where the drift dominates and the noise is small.

    Reference: Roessler2007.
    """
    return rossler(
        A0=[[0, 0, 0, 0], [Fr(2, 3), 0, 0, 0], [Fr(1, 6), Fr(1, 2), 0, 0], [0, 0, 0, 0]],
        alpha=[Fr(1, 4), Fr(1, 4), Fr(1, 2), 0],
        name="rs2",
    )
