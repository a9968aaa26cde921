"""Methods: families of coefficients, one file each, and the named ones.

What a family has to say is in `method.py`; what its stage equations are made of, in `stages.py`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from dalembert.methods.additive import (
    AdditiveTableau,
    additive_dirk,
    additive_gauss,
    additive_midpoint,
)
from dalembert.methods.bracket import BracketTableau, bracket_gauss, bracket_midpoint
from dalembert.methods.composition import NinomiyaVictoirTableau, ninomiya_victoir
from dalembert.methods.constrained import (
    GeodesicSplitting,
    ProjectedMethod,
    g_baoab,
    projected_midpoint,
    rattle,
    weak_rattle,
)
from dalembert.methods.explicit import ExplicitTableau, e1, heun, r2
from dalembert.methods.explicit_weak import ExplicitWeakTableau, rs1, rs2
from dalembert.methods.langevin import LangevinSplitting, aboba, baoab, obabo, quasi_symplectic
from dalembert.methods.mean_square import MeanSquareTableau, dirk, midpoint, stormer_verlet
from dalembert.methods.method import Method, Offer, Promises
from dalembert.methods.weak import WeakTableau, srkw1, srkw2
from dalembert.spelling import ByName, is_not_there

#: The named methods: name -> function that needs no arguments.
METHODS: ByName[Callable[[], Method]] = ByName(
    "method",
    {
        make.__name__: make
        for make in (
            *(midpoint, stormer_verlet, dirk, srkw1, srkw2, heun, r2, e1, rs1, rs2),
            *(additive_midpoint, additive_dirk, additive_gauss, bracket_gauss, bracket_midpoint),
            *(ninomiya_victoir, baoab, aboba, obabo, quasi_symplectic),
            *(rattle, weak_rattle, projected_midpoint, g_baoab),
        )
    },
)


def method_of(given: Method | str) -> Method:
    """A method as it is, or the one of a name."""
    if not isinstance(given, str):
        return given
    if given not in METHODS:
        raise ValueError(METHODS.instead_of(given))
    return METHODS[given]()


__all__ = [
    "METHODS",
    "AdditiveTableau",
    "BracketTableau",
    "ExplicitTableau",
    "ExplicitWeakTableau",
    "GeodesicSplitting",
    "LangevinSplitting",
    "MeanSquareTableau",
    "Method",
    "NinomiyaVictoirTableau",
    "Offer",
    "ProjectedMethod",
    "Promises",
    "WeakTableau",
    "aboba",
    "additive_dirk",
    "additive_gauss",
    "additive_midpoint",
    "baoab",
    "bracket_gauss",
    "bracket_midpoint",
    "dirk",
    "e1",
    "g_baoab",
    "heun",
    "midpoint",
    "ninomiya_victoir",
    "obabo",
    "projected_midpoint",
    "quasi_symplectic",
    "r2",
    "rattle",
    "rs1",
    "rs2",
    "srkw1",
    "srkw2",
    "stormer_verlet",
    "weak_rattle",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> None:
        raise is_not_there("methods", name, __all__)
