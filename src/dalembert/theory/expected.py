"""The orders to expect of a method on one system: its certificate, read with the system's facts."""

import re
from typing import TYPE_CHECKING, Any

from dalembert.methods import AdditiveTableau, BracketTableau, MeanSquareTableau
from dalembert.theory.certify import Certificate
from dalembert.theory.certify_beyond import (
    Orders,
    is_of_order_two_on_straight_drift,
    order_without_noise,
)
from dalembert.theory.elementary_weights import SeriesMethod
from dalembert.theory.order_conditions import weak_order

if TYPE_CHECKING:
    from dalembert.theory.diagnose import Diagnosis

# 0[r r] with or without the kinds of field: the drift differentiated twice along one noise.
_CURVATURE_ALONG_NOISE = re.compile(r"0(\([^)]*\))?\[(\d+)(\([^)]*\))? \2(\([^)]*\))?\]")


def expected_orders(
    d: "Diagnosis", method: Any, certificate: Certificate
) -> tuple[float | None, float | None]:
    """Mean-square and weak order of a method that takes the system; None where it has none."""
    if d.noise_kind == "none":
        is_series = isinstance(method, SeriesMethod)
        order = weak_order(method, "none").order if is_series else order_without_noise(method)
        return float(order), float(order)
    weak = _best(d, certificate.weak_order)
    if d.additive:
        weak = max(weak or 0.0, _weak_for_additive(method, d.straight_drift)) or None
    if method.convergence == "weak":
        return None, weak
    strong = _best(d, certificate.order)
    if d.straight_drift and isinstance(method, AdditiveTableau):
        # Mixed second derivatives are of mean zero: they cost half an order, curvature a whole one.
        gain = 2.0 if d.straight_together else 1.5
        strong = gain if is_of_order_two_on_straight_drift(method) else strong
    return strong, weak


def _best(d: "Diagnosis", orders: Orders) -> float | None:
    """The best order promised for a kind of noise that the system's is a case of."""
    is_case = {"one": d.system.noises == 1, "additive": d.additive, "commuting": d.commutative}
    promised = [order for kind, order in orders.items() if order and is_case.get(kind, True)]
    return max(promised, default=None)


def _weak_for_additive(method: Any, is_straight: bool) -> float:
    """The weak order for as many additive noises as a method takes, zero if no series says it.

    Where only the drift's curvature along single noises stops order two, straight drifts have it.
    """
    if isinstance(method, BracketTableau) and method.brackets == "noise":
        # Constant fields have no brackets.
        a, alpha = method.a, method.alpha
        method = MeanSquareTableau(a, a, a, a, a, a, alpha, alpha, alpha, alpha)
    if not isinstance(method, SeriesMethod):
        return 0.0
    found = weak_order(method, "additive")
    curved = (_CURVATURE_ALONG_NOISE.fullmatch(condition.forest) for condition in found.violations)
    gains = found.order == 1 and is_straight and all(curved)
    return 2.0 if gains else float(found.order)
