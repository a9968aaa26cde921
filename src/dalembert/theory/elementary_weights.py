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

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from math import prod, sqrt

import numpy as np

from dalembert.methods.coefficients import Array
from dalembert.methods.tableau import (
    ExplicitTableau,
    ExplicitWeakTableau,
    MeanSquareTableau,
    Method,
    WeakTableau,
)

#: A rooted tree: the index of the channel at its root, and its subtrees in ascending order.
Tree = tuple[int, tuple["Tree", ...]]
Forest = tuple[Tree, ...]

#: Rößler's mixed variable I_kl from the lists of I and Ĩ.
Mixed = Callable[[list[Array], list[Array], int, int], Array]

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
        for tree in forest:
            value = value * self.coefficient(tree)
        return float(value.sum())

    def coefficient(self, tree: Tree) -> Array:
        """Φ(tree) for every outcome."""
        root, subtrees = tree
        return np.einsum("oi,oi->o", self.channels[root].weights, self._at_stages(subtrees))

    def _at_stages(self, subtrees: Forest) -> Array:
        """Π Φ_i over the subtrees, (outcomes, stages); remembered, since trees share subtrees."""
        if subtrees not in self._memory:
            value = np.ones_like(self.channels[0].weights)
            for root, below in subtrees:
                grown = self.channels[root].matrix @ self._at_stages(below)[:, :, None]
                value = value * grown[:, :, 0]
            self._memory[subtrees] = value
        return self._memory[subtrees]


def mixed_variable(I: list[Array], I_tilde: list[Array], k: int, l: int) -> Array:
    """Rößler's I_kl: antisymmetric in the sense I_kl = I_k Ĩ_l for l < k and −I_l Ĩ_k for l > k."""
    return I[k] * I_tilde[l] if l < k else -I[l] * I_tilde[k]


def expand(method: Method, noises: int, mixed: Mixed = mixed_variable) -> Expansion:
    """Write one step of ``method`` with ``noises`` noises and h = 1 as an ``Expansion``."""
    match method:
        case MeanSquareTableau():
            return _expand_mean_square(method, noises)
        case WeakTableau():
            return _expand_weak(method, noises)
        case ExplicitTableau():
            return _expand_explicit(method, noises)
        case ExplicitWeakTableau():
            return _expand_rossler(method, noises, mixed)


def _enumerate(*laws: tuple[tuple[float, float], ...]) -> tuple[list[Array], Array]:
    """Values of independent variables over all outcomes, and the probabilities of the outcomes."""
    outcomes = list(product(*laws))
    values = np.array([[x for x, _ in outcome] for outcome in outcomes]).reshape(len(outcomes), -1)
    probabilities = np.array([prod(p for _, p in outcome) for outcome in outcomes])
    return list(values.T), probabilities


def _channel(colour: int, label: str, factor: Array, weights: Array, matrix: Array) -> Channel:
    """A channel whose coefficients are those of the tableau times one random variable."""
    return Channel(colour, label, factor[:, None] * weights, factor[:, None, None] * matrix)


def _expand_mean_square(method: MeanSquareTableau, noises: int) -> Expansion:
    m = method
    dW, probabilities = _enumerate(*[_GAUSS] * noises)
    drift = {"H_p": (m.a, m.alpha), "H_q": (m.a_bar, m.alpha), "F": (m.a_hat, m.alpha_hat)}
    noise = {"h_p": (m.b, m.beta), "h_q": (m.b_bar, m.beta), "f": (m.b_hat, m.beta_hat)}
    channels = [
        _channel(colour, f"{colour}{kind}", factor, weights, matrix)
        for colour, factor in enumerate([np.ones_like(probabilities), *dW])
        for kind, (matrix, weights) in _merge(noise if colour else drift).items()
    ]
    return Expansion(tuple(channels), probabilities, odd_vanish=True)


def _merge(kinds: dict[str, tuple[Array, Array]]) -> dict[str, tuple[Array, Array]]:
    """Join the kinds of field that have the same coefficients: their sum is one field."""
    groups: list[tuple[list[str], tuple[Array, Array]]] = []
    for kind, (matrix, weights) in kinds.items():
        for names, (other, other_weights) in groups:
            if np.array_equal(matrix, other) and np.array_equal(weights, other_weights):
                names.append(kind)
                break
        else:
            groups.append(([kind], (matrix, weights)))
    if len(groups) == 1:
        return {"": groups[0][1]}
    return {"(" + "+".join(names) + ")": pair for names, pair in groups}


def _expand_explicit(method: ExplicitTableau, noises: int) -> Expansion:
    uses_dZ = "dZ" in method.needs(noises)
    values, probabilities = _enumerate(*[_GAUSS] * (2 * noises if uses_dZ else noises))
    one = np.ones_like(probabilities)
    channels = [_channel(0, "0", one, method.alpha, method.A)]
    for r in range(noises):
        chi, eta = values[r], values[noises + r] if uses_dZ else 0.0
        dZ = (chi + eta / sqrt(3)) / 2 if uses_dZ else 0.0 * chi
        of_dW = _channel(r + 1, str(r + 1), chi, method.g1, method.B1)
        of_dZ = _channel(r + 1, str(r + 1), dZ, method.g2, method.B2)
        channels.append(
            Channel(r + 1, str(r + 1), of_dW.weights + of_dZ.weights, of_dW.matrix + of_dZ.matrix)
        )
    return Expansion(tuple(channels), probabilities, odd_vanish=True)


class _Blocks:
    """Channels of a method with groups of s stages: group 0 for the drift, others by noise."""

    def __init__(self, stages: int, groups: int, noises: int, outcomes: int) -> None:
        self.stages = stages
        size = stages * groups
        self.weights = np.zeros((noises + 1, outcomes, size))
        self.matrix = np.zeros((noises + 1, outcomes, size, size))

    def group(self, number: int) -> slice:
        return slice(number * self.stages, (number + 1) * self.stages)

    def weigh(self, colour: int, group: int, factor: Array, weights: Array) -> None:
        self.weights[colour][:, self.group(group)] += factor[:, None] * weights

    def feed(self, into: int, colour: int, group: int, factor: Array, matrix: Array) -> None:
        block = factor[:, None, None] * matrix
        self.matrix[colour][:, self.group(into), self.group(group)] += block

    def channels(self) -> tuple[Channel, ...]:
        pairs = zip(self.weights, self.matrix, strict=True)
        return tuple(Channel(c, str(c), w, matrix) for c, (w, matrix) in enumerate(pairs))


def _expand_weak(method: WeakTableau, noises: int) -> Expansion:
    I, probabilities = _enumerate(*[_GAUSS] * noises)
    one = np.ones_like(probabilities)
    blocks = _Blocks(method.stages, 1 + noises, noises, len(one))
    _fill_shared(blocks, method.a0, method.a1, method.b0, method.b1, method.b3, I, one)
    blocks.weigh(0, 0, one, method.alpha)
    for k in range(noises):
        blocks.weigh(k + 1, k + 1, I[k], method.beta)
    return Expansion(blocks.channels(), probabilities, odd_vanish=True)


def _expand_rossler(method: ExplicitWeakTableau, noises: int, mixed: Mixed) -> Expansion:
    values, probabilities = _enumerate(*[_GAUSS] * noises, *[_COIN] * noises)
    I, I_tilde = values[:noises], values[noises:]
    one = np.ones_like(probabilities)
    blocks = _Blocks(method.stages, 1 + 2 * noises, noises, len(one))
    _fill_shared(blocks, method.A0, method.A1, method.B0, method.B1, method.B3, I, one)
    blocks.weigh(0, 0, one, method.alpha)
    for k in range(noises):
        hat = noises + 1 + k
        blocks.weigh(k + 1, k + 1, I[k], method.beta1)
        blocks.weigh(k + 1, hat, one, method.beta2)
        blocks.feed(hat, 0, 0, one, method.A2)
        for l in range(noises):
            if l != k:
                blocks.feed(hat, l + 1, l + 1, mixed(I, I_tilde, k, l), method.B2)
    # Noise k at the stages Ĥᵏ carries no variable that is odd in noise k.
    return Expansion(blocks.channels(), probabilities, odd_vanish=False)


def _fill_shared(
    blocks: _Blocks,
    a0: Array,
    a1: Array,
    b0: Array,
    b1: Array,
    b3: Array,
    I: list[Array],
    one: Array,
) -> None:
    """The stages that both weak families have: group 0 for the drift, group r for noise r."""
    blocks.feed(0, 0, 0, one, a0)
    for k in range(1, len(I) + 1):
        blocks.feed(k, 0, 0, one, a1)
        blocks.feed(0, k, k, I[k - 1], b0)
        for l in range(1, len(I) + 1):
            blocks.feed(k, l, l, I[l - 1], b1 if l == k else b3)
