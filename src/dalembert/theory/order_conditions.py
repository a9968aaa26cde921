"""Weak order decided by the tableau alone, for every family.

Both the exact solution and one step of a method are series over rooted trees whose nodes are
coloured 0 (the drift, weight 1) or r (noise r, weight ½). A method has weak order p exactly when,
for every product of trees (a forest) of total weight up to p + ½, the expected product of its
coefficients equals that of the exact solution. The conditions are sufficient for every system,
and necessary if the fields are arbitrary.

The coefficient of a tree in the exact solution is a sum of iterated Stratonovich integrals J_w
over words w, products of integrals are sums over shuffles, and with h = 1

    E[J_w] = 1 / (2^k n!)   if w is made of n blocks, k of them pairs rr of one noise and the
    others single 0, E[J_w] = 0              otherwise.

Reference: Roessler2007, whose conditions for order two are the ones found here.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import factorial
from typing import Literal

from dalembert.caches import bounded
from dalembert.methods import Method
from dalembert.methods.coefficients import number_text
from dalembert.methods.conditions import TOLERANCE, relevant_size
from dalembert.theory.elementary_weights import Expansion, Forest, Tree, expand

NoiseKind = Literal["none", "one", "additive", "general"]
Word = tuple[int, ...]

#: Orders above two are not examined: the random variables would need more moments.
HIGHEST_ORDER = 2

# Two noises are enough where odd trees vanish: forests of weight two have at most four noise
# nodes, in which every noise occurs an even number of times, iijj at worst. Rößler's stages Ĥᵏ
# give an expectation to forests with an odd number of nodes of noise k: kiijj at worst, three
# noises.
_NOISES: dict[NoiseKind, int] = {"none": 0, "one": 1, "additive": 2, "general": 2}
_NOISES_IF_ODD = 3


@dataclass(frozen=True)
class Condition:
    """One order condition: a forest in bracket notation and both expectations.

    0 is the drift, 1 and 2 are noises: "0[1 1]" is the drift differentiated twice in the
    direction of noise 1. Kinds of field with coefficients of their own are written behind the
    colour: "0(H_p)".
    """

    forest: str
    weight: float
    method: float
    exact: float
    size: float = 1.0

    @property
    def residual(self) -> float:
        """How far the method is from the exact value, relative to the size of what it adds up."""
        return abs(self.method - self.exact) / self.size

    def __str__(self) -> str:
        return f"E[{self.forest}] = {number_text(self.method)}, exact {number_text(self.exact)}"


@dataclass(frozen=True)
class AlgebraicOrder:
    """The highest weak order up to two that a tableau attains for a kind of noise.

    ``violations`` are the conditions that stop the next order; empty at the highest order examined.
    """

    noise: NoiseKind
    order: int
    violations: tuple[Condition, ...]

    def __str__(self) -> str:
        lines = [f"weak order {self.order}, noise: {self.noise}"]
        if self.violations:
            lines.append(f"order {self.order + 1} is stopped by")
            lines += [f"  {condition}" for condition in self.violations]
        return "\n".join(lines)


def algebraic_order(method: Method, noise: NoiseKind) -> AlgebraicOrder:
    """Find the weak order of ``method`` from its coefficients.

    ``noise`` is "one" (a single noise), "additive" (several, with constant fields), "general"
    (several, arbitrary) or "none" (the ordinary differential equation).
    """
    return order_of_expansion(_expanded(method, noise), noise)


def first_order(method: Method, noise: NoiseKind) -> tuple[Condition, ...]:
    """The conditions for order one that ``method`` does not meet."""
    found = order_conditions(_expanded(method, noise), noise, 1)
    return tuple(c for c in found if c.residual > TOLERANCE)


def _expanded(method: Method, noise: NoiseKind) -> Expansion:
    """The series of a step, with as many noises as the conditions for a kind of noise need."""
    if noise not in _NOISES:
        raise ValueError(f"noise must be one of {', '.join(_NOISES)}; got {noise!r}")
    noises = _NOISES[noise]
    if noise == "general":
        method.check_noises(noises)
    elif not method.takes(noises):
        noises = 1
    expansion = expand(method, noises, additive=noise == "additive")
    if noise == "general" and not expansion.odd_vanish and method.takes(_NOISES_IF_ODD):
        expansion = expand(method, _NOISES_IF_ODD)
    return expansion


def order_of_expansion(expansion: Expansion, noise: NoiseKind) -> AlgebraicOrder:
    """The order of a step by the conditions on its B-series, and those that stop the next order."""
    for order in range(HIGHEST_ORDER):
        found = order_conditions(expansion, noise, order + 1)
        violations = tuple(c for c in found if c.residual > TOLERANCE)
        if violations:
            return AlgebraicOrder(noise, order, violations)
    return AlgebraicOrder(noise, HIGHEST_ORDER, ())


def order_conditions(expansion: Expansion, noise: NoiseKind, order: int) -> Iterator[Condition]:
    """The conditions that weak order ``order`` adds to those of the order below.

    Order p needs the local error to be O(h^(p+1)), so weights up to p + 1/2 must agree.
    """
    # An odd number of half units is an odd number of noise nodes.
    weights = (2 * order,) if expansion.odd_vanish else (2 * order, 2 * order + 1)
    colours = tuple(channel.colour for channel in expansion.channels)
    labels = tuple(channel.label for channel in expansion.channels)
    for half_units in weights:
        forests = _to_agree(colours, half_units, noise == "additive", expansion.odd_vanish)
        for forest, exact in forests:
            found = expansion.expectation(forest)
            agree = abs(found - exact) <= TOLERANCE
            yield Condition(
                _text(labels, forest),
                half_units / 2,
                found,
                exact,
                1.0 if agree else float(relevant_size(expansion.absolute.expectation(forest))),
            )


@bounded(256)
def _to_agree(
    colours: tuple[int, ...], half_units: int, noise_is_leaf: bool, odd_vanish: bool
) -> tuple[tuple[Forest, float], ...]:
    """Forests of a weight, without those that vanish, and the exact solution's expectations."""
    pairs = ((f, _recolour(colours, f)) for f in _forests(colours, half_units, noise_is_leaf))
    return tuple(
        (forest, exact_expectation(coloured))
        for forest, coloured in pairs
        if not (odd_vanish and _has_odd_noise(coloured))
    )


@cache
def exact_expectation(forest: Forest) -> float:
    """E of the product of the exact solution's coefficients, for trees of colours and h = 1."""
    return sum(count * _expected_integral(word) for word, count in _words(forest).items())


def _expected_integral(word: Word) -> float:
    blocks = pairs = position = 0
    while position < len(word):
        if word[position] == 0:
            position += 1
        elif word[position : position + 2] == (word[position],) * 2:
            position += 2
            pairs += 1
        else:
            return 0.0
        blocks += 1
    return 1.0 / (2**pairs * factorial(blocks))


@cache
def _words(forest: Forest) -> Counter[Word]:
    """The product of the trees as a sum of iterated integrals, outermost letter last."""
    total = Counter({(): 1})
    for root, subtrees in forest:
        tree = {(*word, root): count for word, count in _words(subtrees).items()}
        merged: Counter[Word] = Counter()
        for left, n in total.items():
            for right, k in tree.items():
                for word, count in _shuffle(left, right).items():
                    merged[word] += n * k * count
        total = merged
    return total


@cache
def _shuffle(left: Word, right: Word) -> Counter[Word]:
    if not left or not right:
        return Counter({left + right: 1})
    total: Counter[Word] = Counter()
    for shorter, last in (((left[:-1], right), left[-1]), ((left, right[:-1]), right[-1])):
        for word, count in _shuffle(*shorter).items():
            total[(*word, last)] += count
    return total


def _forests(colours: tuple[int, ...], half_units: int, noise_is_leaf: bool) -> tuple[Forest, ...]:
    """All multisets of trees of the given total weight, each in ascending order."""

    @cache
    def trees(weight: int) -> tuple[Tree, ...]:
        found = []
        for root, colour in enumerate(colours):
            rest = weight - (1 if colour else 2)
            if rest == 0 or (rest > 0 and not (colour and noise_is_leaf)):
                found += [(root, below) for below in forests(rest)]
        return tuple(found)

    @cache
    def forests(weight: int) -> tuple[Forest, ...]:
        if weight == 0:
            return ((),)
        return tuple(
            (*rest, tree)
            for last in range(1, weight + 1)
            for tree in trees(last)
            for rest in forests(weight - last)
            if not rest or rest[-1] <= tree
        )

    return forests(half_units)


def _recolour(colours: tuple[int, ...], forest: Forest) -> Forest:
    """Replace channels by colours: the exact solution does not know the kinds of field."""
    return tuple(sorted((colours[root], _recolour(colours, below)) for root, below in forest))


def _has_odd_noise(forest: Forest) -> bool:
    nodes = Counter(_nodes(forest))
    return any(count % 2 for colour, count in nodes.items() if colour)


def _nodes(forest: Forest) -> Iterator[int]:
    for colour, below in forest:
        yield colour
        yield from _nodes(below)


@bounded(2**14)
def _text(labels: tuple[str, ...], forest: Forest) -> str:
    return " · ".join(_brackets(labels, tree) for tree in forest)


def _brackets(labels: tuple[str, ...], tree: Tree) -> str:
    root, below = tree
    inner = " ".join(_brackets(labels, subtree) for subtree in below)
    return labels[root] + (f"[{inner}]" if below else "")
