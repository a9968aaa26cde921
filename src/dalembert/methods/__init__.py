"""Methods: frozen tableaus of coefficients, and the named ones."""

from collections.abc import Callable

from dalembert.methods.dirk import dirk
from dalembert.methods.e1 import e1
from dalembert.methods.heun import heun
from dalembert.methods.midpoint import midpoint
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

#: Every named method: name -> function that needs no arguments.
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

__all__ = [
    "METHODS",
    "ExplicitTableau",
    "ExplicitWeakTableau",
    "MeanSquareTableau",
    "Method",
    "WeakTableau",
    "dirk",
    "e1",
    "heun",
    "midpoint",
    "r2",
    "rs1",
    "rs2",
    "srkw1",
    "srkw2",
    "stormer_verlet",
]
