"""Methods: frozen tableaus of coefficients, and the named ones."""

from collections.abc import Callable

from dalembert.methods.additive import (
    AdditiveTableau,
    additive_dirk,
    additive_gauss,
    additive_midpoint,
)
from dalembert.methods.bracket import BracketTableau, bracket_gauss, bracket_midpoint
from dalembert.methods.dirk import dirk
from dalembert.methods.e1 import e1
from dalembert.methods.heun import heun
from dalembert.methods.langevin import (
    LangevinSplitting,
    aboba,
    baoab,
    obabo,
    quasi_symplectic,
)
from dalembert.methods.midpoint import midpoint
from dalembert.methods.ninomiya_victoir import NinomiyaVictoirTableau, ninomiya_victoir
from dalembert.methods.r2 import r2
from dalembert.methods.rs1 import rs1
from dalembert.methods.rs2 import rs2
from dalembert.methods.srkw1 import srkw1
from dalembert.methods.srkw2 import srkw2
from dalembert.methods.stormer_verlet import stormer_verlet
from dalembert.methods.tableau import (
    ExplicitTableau,
    ExplicitWeakTableau,
    MeanSquareTableau,
    Method,
    WeakTableau,
)

#: The paper's methods and those it compares them with: name -> function that needs no arguments.
METHODS: dict[str, Callable[[], Method]] = {
    "midpoint": midpoint,
    "stormer_verlet": stormer_verlet,
    "dirk": dirk,
    "srkw1": srkw1,
    "srkw2": srkw2,
    "heun": heun,
    "r2": r2,
    "e1": e1,
    "rs1": rs1,
    "rs2": rs2,
}

#: Methods beyond the paper, of higher order or for some systems only, in the same way.
BEYOND: dict[str, Callable[[], Method]] = {
    "additive_midpoint": additive_midpoint,
    "additive_dirk": additive_dirk,
    "additive_gauss": additive_gauss,
    "bracket_gauss": bracket_gauss,
    "bracket_midpoint": bracket_midpoint,
    "ninomiya_victoir": ninomiya_victoir,
    "baoab": baoab,
    "aboba": aboba,
    "obabo": obabo,
    "quasi_symplectic": quasi_symplectic,
}

__all__ = [
    "BEYOND",
    "METHODS",
    "AdditiveTableau",
    "BracketTableau",
    "ExplicitTableau",
    "ExplicitWeakTableau",
    "LangevinSplitting",
    "MeanSquareTableau",
    "Method",
    "NinomiyaVictoirTableau",
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
    "heun",
    "midpoint",
    "ninomiya_victoir",
    "obabo",
    "quasi_symplectic",
    "r2",
    "rs1",
    "rs2",
    "srkw1",
    "srkw2",
    "stormer_verlet",
]
