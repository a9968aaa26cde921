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
higher degree. Where increments are squares of the noise, or higher powers, there are more nodes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from math import pi, sqrt

import jax
import numpy as np

from dalembert.methods import Method
from dalembert.methods.conditions import Array
from dalembert.methods.stages import Entry, Increment, StageSystem
from dalembert.noise import Increments
from dalembert.noise.kinds import mixed_increments
from dalembert.system import BRACKET_TERMS, DRIFT_TERMS, NOISE_TERMS, Bracket, Term

#: A rooted tree: the index of the channel at its root, and its subtrees in ascending order.
Tree = tuple[int, tuple["Tree", ...]]
Forest = tuple[Tree, ...]
MixedMoments = Callable[[Array, Array], Array]

Law = Sequence[tuple[float, float]]
"""Values of a random variable and their probabilities."""

_GAUSS = ((-sqrt(3), 1 / 6), (0.0, 2 / 3), (sqrt(3), 1 / 6))
COIN = ((-1.0, 1 / 2), (1.0, 1 / 2))

MIXED = partial(mixed_increments, numpy=np)
"""Rößler's I_kl of all outcomes, (outcomes, m, m)."""


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
    _trees: dict[Tree, Array] = field(default_factory=dict, repr=False, compare=False)

    def expectation(self, forest: Forest) -> float:
        """E of the product of the coefficients of the trees in ``forest``."""
        value = self.probabilities
        for tree in forest:
            value = value * self._of_tree(tree)
        return float(value.sum())

    def _of_tree(self, tree: Tree) -> Array:
        """The coefficient of a tree, (outcomes,); remembered, since forests share trees."""
        if tree not in self._trees:
            weights, grown = self.channels[tree[0]].weights, self._at_stages(tree[1])
            self._trees[tree] = np.einsum("oi,oi->o", weights, grown)
        return self._trees[tree]

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


def is_series(method: Method, noises: int, additive: bool = False) -> bool:
    """Whether the step is a B-series: rows are sums of fields at stages, with powers of noise."""
    rows = method.rows(noises)
    entries = [e for row in _entries(rows, additive) for e in row]
    last = len(rows.q_rows) - 1
    return (
        len(rows.q_rows) == len(rows.p_rows)
        and all(e.q_row < last for e in entries)
        and all(e.term[0] not in BRACKET_TERMS and e.q_row == e.p_row for e in entries)
        and _degree(entries, noises) is not None
    )


def treats_all_alike(method: Method) -> bool:
    """Whether all parts of a field have the same weights: gradients with q, with p, and forces."""
    return is_series(method, 1) and len(expand(method, 1).channels) == 2


def expand(
    method: Method, noises: int, mixed: MixedMoments = MIXED, additive: bool = False
) -> Expansion:
    """Write one step of ``method`` with ``noises`` noises and h = 1 as an ``Expansion``."""
    rows = _entries(method.rows(noises), additive)
    entries = [(i, e) for i, row in enumerate(rows) for e in row]
    degree = _degree([e for _, e in entries], noises) or 1
    noise, probabilities = _increments(method, noises, mixed, degree)
    terms = [[(kind, 0) for kind in DRIFT_TERMS]]
    terms += [[(kind, r) for kind in NOISE_TERMS] for r in range(noises)]
    size = (len(probabilities), len(rows), len(rows) - 1)
    tables: dict[Term, Array] = {term: np.zeros(size) for kinds in terms for term in kinds}
    values = _values({e.increment for _, e in entries}, noise)
    for i, e in entries:
        tables[e.term][:, i, e.q_row] += e.weight * values[e.increment]
    channels = [
        Channel(colour, f"{colour}{names}", table[:, -1], table[:, :-1])
        for colour, kinds in enumerate(terms)
        for names, table in _merge([(kind, tables[kind, i]) for kind, i in kinds])
    ]
    # Noise k at Rößler's stages Ĥᵏ carries no variable that is odd in noise k alone.
    odd_vanish = True
    for r in range(noises):
        reflected = _values(values, _changed(noise, np.where(np.arange(noises) == r, -1.0, 1.0)))
        for _, e in entries:
            sign = -1.0 if e.term[0] in NOISE_TERMS and e.term[1] == r else 1.0
            odd_vanish &= np.array_equal(reflected[e.increment], sign * values[e.increment])
    return Expansion(tuple(channels), probabilities, odd_vanish)


def _entries(rows: StageSystem, additive: bool) -> list[list[Entry]]:
    """What both rows of every stage and of the new state add up, without what vanishes.

    Constant fields have no brackets: those of additive noises vanish.
    """
    pairs = zip(rows.q_rows, rows.p_rows, strict=False)
    return [
        [e for e in (*q, *p) if e.weight and not (additive and _is_of_noises(e.term[1]))]
        for q, p in pairs
    ]


def _is_of_noises(which: int | Bracket) -> bool:
    """Whether it is a bracket of noises alone."""
    return isinstance(which, tuple) and all(
        _is_of_noises(x) if isinstance(x, tuple) else x > 0 for x in which
    )


def _values(increments: Iterable[Increment], noise: Increments) -> dict[Increment, Array]:
    """What increments are with h = 1."""
    with jax.enable_x64(True):
        return {x: np.asarray(x.value(np.float64(1), noise)) for x in increments}


def _changed(noise: Increments, factors: Array) -> Increments:
    """The same noise with every Wiener process multiplied by a number."""
    assert noise.dZ is not None and noise.mixed is not None
    dW, dZ = (x * factors[:, None] for x in (noise.dW, noise.dZ))
    return noise._replace(dW=dW, dZ=dZ, mixed=noise.mixed * np.outer(factors, factors)[..., None])


def _degree(entries: Sequence[Entry], noises: int) -> int | None:
    """The highest power of the noise in the increments of entries; None if one is no power."""
    increments = {e.increment for e in entries}
    if any(x.factor or "area" in x.reads for x in increments):
        return None
    numbers = np.random.default_rng(0).normal(size=(noises * (noises + 2), 8))
    dW, dZ, mixed = np.split(numbers, [noises, 2 * noises])
    noise = Increments(dW, dZ, mixed.reshape(noises, noises, 8), coin=np.sign(numbers.sum(0) + 1))
    once, twice = (_values(increments, _changed(noise, np.full(noises, x))) for x in (1.0, 2.0))
    degrees = [
        next((d for d in range(9) if np.array_equal(twice[x], 2.0**d * once[x])), None)
        for x in increments
    ]
    return None if None in degrees else max((d or 0 for d in degrees), default=0)


def _increments(
    method: Method, noises: int, mixed: MixedMoments, degree: int
) -> tuple[Increments, Array]:
    """All outcomes of the noise of a step with h = 1, outcomes last, and their probabilities."""
    needs = method.needs(noises)
    nothing = ((0.0, 1.0),)
    gauss = _GAUSS if degree < 2 or method.convergence == "weak" else _gauss(5 * degree)
    second = COIN if "mixed" in needs else gauss if "dZ" in needs else nothing
    coins = COIN if "coin" in needs else nothing
    outcomes, probabilities = outcomes_of([*[gauss] * noises, *[second] * noises, coins])
    first, other, coin = np.split(outcomes, [noises, 2 * noises], axis=1)
    dZ = (first + other / sqrt(3)).T / 2
    noise = Increments(first.T, dZ, np.moveaxis(mixed(first, other), 0, -1), coin=coin[:, 0])
    return noise, probabilities


def outcomes_of(laws: Sequence[Law]) -> tuple[Array, Array]:
    """All outcomes of independent variables, (outcomes, variables), and their probabilities."""
    found = list(product(*laws))
    pairs = np.array(found).reshape(len(found), len(laws), 2)
    return pairs[..., 0], pairs[..., 1].prod(axis=1)


def _gauss(degree: int) -> Law:
    """Nodes and weights that integrate polynomials up to a degree against the normal density."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(degree // 2 + 1)
    return list(zip(nodes.tolist(), (weights / sqrt(2 * pi)).tolist(), strict=True))


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
