"""One step of any method as a stochastic B-series: its coefficients, tree by tree.

With h = 1, a step of any family has the form

    Y_i = y + Σ_c Σ_j M^c_ij f_c(Y_j),      y' = y + Σ_c Σ_i w^c_i f_c(Y_i),

where the channels c are the drift and the noises, and the coefficients M^c and w^c are random. The
coefficient of a rooted tree with root c and subtrees t₁, …, t_n is

    Φ(c[t₁ … t_n])   = Σ_i w^c_i Φ_i(t₁) ⋯ Φ_i(t_n),
    Φ_i(c[t₁ … t_n]) = Σ_j M^c_ij Φ_j(t₁) ⋯ Φ_j(t_n).

The random numbers are enumerated, not drawn, so that expectations are exact. Three outcomes a
variable are enough up to weak order two: the three-point law is the Gauss–Hermite rule with three
nodes, which integrates polynomials up to degree five, and no product of trees of weight 5/2 has a
higher degree.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import sqrt
from typing import Any

import numpy as np

from dalembert.methods import AdditiveTableau, NinomiyaVictoirTableau
from dalembert.methods.coefficients import Array
from dalembert.methods.tableau import ClassicMethod, ExplicitWeakTableau
from dalembert.stepping.stages import stage_system
from dalembert.system import DRIFT_TERMS, NOISE_TERMS, Term

#: A rooted tree: the index of the channel at its root, and its subtrees in ascending order.
Tree = tuple[int, tuple["Tree", ...]]
Forest = tuple[Tree, ...]
Mixed = Callable[[Array, Array], Array]

_GAUSS = ((-sqrt(3), 1 / 6), (0.0, 2 / 3), (sqrt(3), 1 / 6))
_COIN = ((-1.0, 1 / 2), (1.0, 1 / 2))


@dataclass(frozen=True)
class Channel:
    """One field of the equation (colour 0: drift, colour r: noise r) and how the step uses it."""

    colour: int
    label: str
    weights: Array  # (outcomes, stages)
    matrix: Array  # (outcomes, stages, stages)


@dataclass(frozen=True)
class Expansion:
    """The channels of a method and the probabilities of the outcomes.

    ``odd_vanish`` says that the law of the step does not change when one noise is reflected
    together with its field, so that trees with an odd number of nodes of one noise have
    expectation zero by themselves.
    """

    channels: tuple[Channel, ...]
    probabilities: Array
    odd_vanish: bool
    _memory: dict[Forest, Array] = field(default_factory=dict, repr=False, compare=False)

    def expectation(self, forest: Forest) -> float:
        """E of the product of the coefficients of the trees in ``forest``."""
        value = self.probabilities
        for root, subtrees in forest:
            weights = self.channels[root].weights
            value = value * np.einsum("oi,oi->o", weights, self._at_stages(subtrees))
        return float(value.sum())

    @cached_property
    def absolute(self) -> "Expansion":
        """The same with absolute values, whose expectations are the sizes of what is added up."""
        channels = (
            replace(c, weights=np.abs(c.weights), matrix=np.abs(c.matrix)) for c in self.channels
        )
        return Expansion(tuple(channels), self.probabilities, self.odd_vanish)

    def _at_stages(self, subtrees: Forest) -> Array:
        """Π Φ_i over the subtrees, (outcomes, stages); remembered, since trees share subtrees."""
        if subtrees not in self._memory:
            value = np.ones_like(self.channels[0].weights)
            for root, below in subtrees:
                grown = self.channels[root].matrix @ self._at_stages(below)[:, :, None]
                value = value * grown[:, :, 0]
            self._memory[subtrees] = value
        return self._memory[subtrees]


def mixed_variables(I: Array, I_tilde: Array) -> Array:
    """Rößler's I_kl, (outcomes, m, m): I_k Ĩ_l for l < k and, antisymmetric, −I_l Ĩ_k for l > k."""
    lower = np.tril(I[:, :, None] * I_tilde[:, None, :], -1)
    return lower - lower.swapaxes(1, 2)


#: Methods whose step is a B-series: all of their rows are sums of fields.
SeriesMethod = ClassicMethod | AdditiveTableau | NinomiyaVictoirTableau


def expand(method: SeriesMethod, noises: int, mixed: Mixed = mixed_variables) -> Expansion:
    """Write one step of ``method`` with ``noises`` noises and h = 1 as an ``Expansion``."""
    increments, probabilities = _increments(method, noises, mixed)
    rows = stage_system(method, noises)
    stages = len(rows.q_rows) - 2
    terms = [[(kind, 0) for kind in DRIFT_TERMS]]
    terms += [[(kind, r) for kind in NOISE_TERMS] for r in range(noises)]
    size = (len(probabilities), stages + 1, stages)
    tables: dict[Term, Array] = {term: np.zeros(size) for kinds in terms for term in kinds}
    for i, entries in enumerate(zip(rows.q_rows[1:], rows.p_rows[1:], strict=True)):
        for entry in (*entries[0], *entries[1]):
            if entry.weight:
                here = tables[entry.term][:, i, entry.q_row - 1]
                here += entry.weight * increments[entry.increment]
    channels = [
        Channel(colour, f"{colour}{names}", table[:, -1], table[:, :-1])
        for colour, kinds in enumerate(terms)
        for names, table in _merge([(kind, tables[kind, i]) for kind, i in kinds])
    ]
    # Noise k at Rößler's stages Ĥᵏ carries no variable that is odd in noise k.
    odd_vanish = not isinstance(method, ExplicitWeakTableau)
    return Expansion(tuple(channels), probabilities, odd_vanish)


def _increments(method: SeriesMethod, noises: int, mixed: Mixed) -> tuple[dict[Any, Array], Array]:
    """All outcomes of the increments of a step with h = 1, and their probabilities."""
    needs = method.needs(noises)
    nothing = ((0.0, 1.0),)
    second = _COIN if "mixed" in needs else _GAUSS if "dZ" in needs else nothing
    coins = _COIN if "coin" in needs else nothing
    pairs = list(product(*[_GAUSS] * noises, *[second] * noises, coins))
    outcomes = np.array(pairs).reshape(len(pairs), 2 * noises + 1, 2)
    first, other, coin = np.split(outcomes[..., 0], [noises, 2 * noises], axis=1)
    one, dZ = np.ones(len(outcomes)), (first + other / sqrt(3)) / 2
    values: dict[Any, Array] = {("dt",): one, ("sqrt_dt",): one}
    for r in range(noises):
        values |= {("dW", r): first[:, r], ("dZ/dt", r): dZ[:, r]}
        for side, sign in (("heads", 1), ("tails", -1)):
            values[side, r] = first[:, r] * (1 + sign * coin[:, 0]) / 2
    if "mixed" in needs:
        table = mixed(first, other)
        values |= {("mixed", k, l): table[:, k, l] for k in range(noises) for l in range(noises)}
    return values, outcomes[..., 1].prod(axis=1)


def _merge(kinds: Sequence[tuple[str, Array]]) -> list[tuple[str, Array]]:
    """Join the kinds of field that have the same coefficients: their sum is one field."""
    groups: list[tuple[list[str], Array]] = []
    for kind, table in kinds:
        same = next((names for names, other in groups if np.array_equal(table, other)), None)
        if same is None:
            groups.append(([kind], table))
        else:
            same.append(kind)
    if len(groups) == 1:
        return [("", groups[0][1])]
    return [(f"({'+'.join(names)})", table) for names, table in groups]
