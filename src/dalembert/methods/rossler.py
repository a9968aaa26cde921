"""The coefficients that Rößler's methods RS1 and RS2 have in common."""

from fractions import Fraction as Fr

from dalembert.methods.coefficients import Number
from dalembert.methods.tableau import ExplicitWeakTableau

Rows = list[list[Number]]

_ZERO: Rows = [[0, 0, 0, 0]] * 4
_A1: Rows = [[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
_B0: Rows = [[0, 0, 0, 0], [0, 0, 0, 0], [Fr(1, 4), Fr(3, 4), 0, 0], [0, 0, 0, 0]]
_B1: Rows = [
    [0, 0, 0, 0],
    [Fr(2, 3), 0, 0, 0],
    [Fr(1, 12), Fr(1, 4), 0, 0],
    [Fr(-5, 4), Fr(1, 4), 2, 0],
]
_B2: Rows = [[0, 0, 0, 0], [1, 0, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 0]]
_B3: Rows = [
    [0, 0, 0, 0],
    [0, 0, 0, 0],
    [Fr(1, 4), Fr(3, 4), 0, 0],
    [Fr(1, 4), Fr(3, 4), 0, 0],
]
_BETA1: list[Number] = [Fr(1, 8), Fr(3, 8), Fr(3, 8), Fr(1, 8)]
_BETA2: list[Number] = [0, Fr(-1, 4), Fr(1, 4), 0]


def rossler(A0: Rows, alpha: list[Number], name: str) -> ExplicitWeakTableau:
    """Complete the drift coefficients ``A0`` and ``alpha`` to one of Rößler's methods."""
    return ExplicitWeakTableau(
        A0=A0, A1=_A1, A2=_ZERO, B0=_B0, B1=_B1, B2=_B2, B3=_B3,
        alpha=alpha, beta1=_BETA1, beta2=_BETA2,
        name=name,
    )  # fmt: skip
