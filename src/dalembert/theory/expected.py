"""The orders to expect of a method on one system: its certificate, read with the system's facts."""

import re
from typing import TYPE_CHECKING

from dalembert.methods import Method
from dalembert.methods.method import Orders
from dalembert.theory.certificate import Certificate
from dalembert.theory.elementary_weights import is_series
from dalembert.theory.order_conditions import algebraic_order

if TYPE_CHECKING:
    from dalembert.theory.diagnosis import Diagnosis

# 0[r r] with or without the kinds of field: the drift differentiated twice along one noise.
_CURVATURE_ALONG_NOISE = re.compile(r"0(\([^)]*\))?\[(\d+)(\([^)]*\))? \2(\([^)]*\))?\]")


def expected_orders(
    d: "Diagnosis", method: Method, certificate: Certificate
) -> tuple[float | None, float | None]:
    """Mean-square and weak order of a method that takes the system; None where it has none."""
    promised = method.promises()
    if d.noise_kind == "none":
        order = promised.without_noise
        if order is None:
            order = float(algebraic_order(method, "none").order) if is_series(method, 0) else None
        return order, order
    weak = _best(d, certificate.weak_order)
    if d.additive and not method.parts:
        weak = max(weak or 0.0, _weak_for_additive(method, d.straight_drift)) or None
    if method.convergence == "weak":
        return None, weak
    strong = _best(d, certificate.order)
    if d.straight_drift and promised.straight:
        strong = promised.straight[d.straight_together]
    return strong, weak


def _best(d: "Diagnosis", orders: Orders) -> float | None:
    """The best order promised for a kind of noise that the system's is a case of."""
    is_case = {"one": d.system.noises == 1, "additive": d.additive, "commuting": d.commutative}
    promised = [order for kind, order in orders.items() if order and is_case.get(kind, True)]
    return max(promised, default=None)


def _weak_for_additive(method: Method, is_straight: bool) -> float:
    """The weak order for as many additive noises as a method takes, zero if no series says it.

    Where only the drift's curvature along single noises stops order two, straight drifts have it.
    """
    if not is_series(method, 2 if method.takes(2) else 1, additive=True):
        return 0.0
    found = algebraic_order(method, "additive")
    curved = (_CURVATURE_ALONG_NOISE.fullmatch(condition.forest) for condition in found.violations)
    gains = found.order == 1 and is_straight and all(curved)
    return 2.0 if gains else float(found.order)
