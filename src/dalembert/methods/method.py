"""What a family of methods has to say, in one class: `Method`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from dalembert.methods.checked_rows import checked_rows
from dalembert.methods.conditions import Residuals
from dalembert.methods.stages import StageSystem
from dalembert.system import ALL, System

Convergence = Literal["mean-square", "weak"]
Orders = dict[str, float | None]

#: Kinds of noise, from the easiest for a method to the hardest.
NOISE_KINDS = ("one", "additive", "commuting", "general")

LAGRANGE_DALEMBERT = "Lagrange–d'Alembert structure"
MAX_NOISES_WITH_STAGES = 32
"""Noises that a method can take which has stages for every one of them."""

SYMPLECTIC = "symplectic map when the forces vanish"
QUASI_SYMPLECTIC = "symplectic map but for the friction, which contracts volumes at its exact rate"


def orders(
    one: float | None = None,
    additive: float | None = None,
    commuting: float | None = None,
    general: float | None = None,
) -> Orders:
    """Orders by kind of noise; None where there is none."""
    return {"one": one, "additive": additive, "commuting": commuting, "general": general}


@dataclass(frozen=True)
class Promises:
    """What a method keeps and how fast it converges, as far as its family knows.

    Attributes:
        structure: what is kept if all residuals vanish to rounding; "" if none is declared.
        residuals: of the conditions of the structure, by their formulas; {} if it is kept whatever
            the coefficients are. None: a certificate says that the structure was not checked.
        not_counted: conditions that are shown but do not apply.
        sums: residuals of the conditions of convergence; None: those of weak order one, from the
            series of the stage rows.
        order: mean-square order by kind of noise, "one", "additive", "commuting" or "general";
            None where there is none. None alone: that of a weak method is its weak order, others
            promise nothing. One that the series of the stage rows contradicts is not believed.
        weak_order: None: from the series of the stage rows, up to two.
        without_noise: the order without noise; None: from the series, up to two.
        straight: mean-square orders for additive noise where the drift is affine along each noise,
            and where it is along all sums of them; None: no other than `order`.
        notes: what the numbers do not say.
    """

    structure: str = ""
    residuals: Residuals | None = None
    not_counted: frozenset[str] = frozenset()
    sums: Residuals | None = None
    order: Orders | None = None
    weak_order: Orders | None = None
    without_noise: float | None = None
    straight: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.structure, str):
            raise TypeError(f"Promises: structure must be a text, not {self.structure!r}.")
        for name in ("order", "weak_order"):
            _check_orders(name, getattr(self, name))
        for name in ("residuals", "sums"):
            _check_residuals(name, getattr(self, name))
        for name, value in (("without_noise", self.without_noise), ("straight", self.straight)):
            for order in value if isinstance(value, tuple) else (value,):
                _check_order(name, order)


def _check_orders(name: str, given: Any) -> None:
    """Refuse what is no order by kind of noise."""
    if given is None:
        return
    example = f'{name}={{"one": 1.0, "additive": 1.0}}'
    if not isinstance(given, Mapping):
        raise TypeError(
            f"Promises: {name} must be orders by kind of noise, {example}, not {given!r}."
        )
    for kind, order in given.items():
        if kind not in NOISE_KINDS:
            raise ValueError(
                f"Promises: {name} has the kind of noise {kind!r}; there are "
                f"{', '.join(map(repr, NOISE_KINDS))}. Write {example}."
            )
        _check_order(f"{name}[{kind!r}]", order)


def _check_order(name: str, order: Any) -> None:
    if order is None:
        return
    is_number = isinstance(order, int | float | np.number) and not isinstance(order, bool)
    if not is_number or not 0 < order < np.inf:
        raise ValueError(
            f"Promises: {name} must be a positive number such as 1.0, or None where the method "
            f"does not converge, not {order!r}."
        )


def _check_residuals(name: str, given: Any) -> None:
    """Refuse what are no residuals by the formulas of conditions."""
    if given is None:
        return
    example = f'{name}={{"Σ α = 1": 0.0}}'
    if not isinstance(given, Mapping):
        raise TypeError(f"Promises: {name} must be numbers by formula, {example}, not {given!r}.")
    for label, value in given.items():
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not is_number or not value >= 0:
            raise ValueError(
                f"Promises: {name}[{label!r}] must be a number ≥ 0, how far the condition is from "
                f"being met, not {value!r}."
            )


@dataclass(frozen=True)
class Offer:
    """What a method has to offer to a kind of system that it is made for.

    Attributes:
        purpose: what it is good for, such as "sampling".
        reasons: why, in words; `{strong}` and `{weak}` stand for its orders on that system,
            `{kept}` for whether it keeps the structure, `{solves}` for the equations of a step.
    """

    purpose: str
    reasons: tuple[str, ...]


class Method(ABC):
    """A method of any family: one step as stage rows, and what is known about it.

    A family is a frozen dataclass that inherits from this class. It has to say its name, family,
    convergence and stages, and to write its `rows`; the rest has defaults. Methods are equal, and
    hash alike, when all of their fields are: they are keys of caches, and two that differ must not
    be equal.
    """

    name: str
    #: The family in words.
    family: ClassVar[str]
    #: The sense in which it converges, "mean-square" or "weak", which also decides its usual noise.
    convergence: Any
    #: Number of stages.
    stages: Any
    #: What a system must be or have, beyond the number of noises: "additive noise", "Langevin
    #: equation", "constraints".
    requires: ClassVar[frozenset[str]] = frozenset()

    #: Whether all noises act at the same stages, so that one function can give all of them.
    shares_stages: ClassVar[bool] = False

    #: Whether it takes systems of some kinds alone, and `da.diagnose` shows it only where it has an
    #: offer. Others are compared for every system, if they require nothing of it.
    is_special: ClassVar[bool] = False

    @abstractmethod
    def rows(self, noises: int) -> StageSystem:
        """The stage equations for a number of noises, or for ALL if stages are shared."""

    def rows_for(self, system: System) -> StageSystem:
        """The stage equations for a system."""
        is_joint = system.is_joint and self.shares_stages
        return checked_rows(self, ALL if is_joint else system.noises)

    @property
    def parts(self) -> tuple[tuple[Method, int], ...]:
        """Of a method for constraints: the steps between which it projects, and how often each."""
        return ()

    def promises(self) -> Promises:
        """What it keeps and its orders, beyond what the series of its rows says."""
        return Promises()

    @property
    def is_compared(self) -> bool:
        """Whether `da.diagnose` compares it for every system."""
        return not self.is_special and not self.requires

    def offers(self, found: Any) -> Offer | None:
        """What it is made for among systems like one, as `da.diagnose` has found it; None: nothing.

        Args:
            found: the `da.Diagnosis` of the system without what is said of methods.
        """
        return None

    def needs(self, noises: int = 1) -> frozenset[str]:
        """Increments that one step reads: "dW", and others where the rows use them."""
        return _needs(self, noises)

    def needs_for(self, system: System) -> frozenset[str]:
        """Increments that one step on a system reads; a flow has one for each half of the step."""
        if system.flow is None:
            return self.needs(system.noises)
        return self.needs(0) | {"dW", "dZ"}

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Functions of the state of one path that it reads besides those of the system, by name."""
        return {}

    def check_noises(self, noises: int) -> None:
        """Raise ``ValueError`` if the method cannot take this number of noises."""
        if noises < 0:
            raise ValueError(f"the number of noises cannot be negative, got {noises}")
        if noises > MAX_NOISES_WITH_STAGES and not self.shares_stages:
            raise ValueError(
                f"{self.name} takes at most {MAX_NOISES_WITH_STAGES} noises, because every one has "
                f"stages of its own, and the system has {noises}. Use a method whose stages are "
                "shared, such as midpoint, stormer_verlet, dirk, heun, additive_midpoint or baoab"
            )

    def takes(self, noises: int) -> bool:
        """Whether the method can take this number of noises."""
        try:
            self.check_noises(noises)
        except ValueError:
            return False
        return True

    @property
    def stages_in_words(self) -> str:
        """The number of stages, by what they are for where that matters."""
        return str(self.stages)

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to write the method down again, in types that JSON knows."""
        said = {"name": self.name, "family": self.family, "convergence": self.convergence}
        itself: Any = self
        return said | {field.name: getattr(self, field.name) for field in fields(itself)}

    def __str__(self) -> str:
        return f"{self.name}: {self.family}"

    def _who(self) -> str:
        return f"{type(self).__name__} {self.name!r}"

    def _check_convergence(self) -> None:
        if self.convergence not in get_args(Convergence):
            raise ValueError(
                f"{self._who()}: convergence must be one of {get_args(Convergence)}, not "
                f"{self.convergence!r}"
            )


@lru_cache(maxsize=256)
def _needs(method: Method, noises: int) -> frozenset[str]:
    count = min(noises, 1) if method.shares_stages else noises
    return frozenset({"dW"}).union(
        *(e.increment.reads for e in checked_rows(method, count).entries)
    )
