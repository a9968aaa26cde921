"""Initial states of the paths with given numbers, and samplers to draw them with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dalembert.caches import bounded
from dalembert.captured import Keyed, captured
from dalembert.digest import trace_key
from dalembert.noise import initial_key, seed_words
from dalembert.precision import cast, check_real
from dalembert.quantiles import quantile_function, require_callable
from dalembert.stepping.project import BadStartError, check_start
from dalembert.system import System
from dalembert.traces import reads_argument


@dataclass(frozen=True)
class InitialStates:
    """Path numbers, shape (n,), to their initial q and p, shape (n, dim).

    Attributes:
        of: the function.
        common: where all paths start, each of shape (1, dim), if they start alike.
    """

    of: Callable[[np.ndarray], tuple[Any, Any]]
    common: tuple[np.ndarray, np.ndarray] | None = None

    def __call__(self, numbers: np.ndarray) -> tuple[Any, Any]:
        return self.of(numbers)


def number_words(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Path numbers as pairs of 32-bit words, which every device can hold."""
    low = (numbers & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return low, (numbers >> np.uint64(32)).astype(np.uint32)


def initial_states(
    system: System, initial: Any, paths: int, seed: int, dtype: np.dtype
) -> InitialStates:
    """The initial states of a run, from a pair of arrays or a sampler, checked."""
    if callable(initial):
        return _sampled(system, initial, seed, dtype)
    arrays = []
    for name, value in zip(("q0", "p0"), start_pair(initial), strict=True):
        x = np.asarray(value)
        check_real(name, x)
        check_state_shape(name, x.shape, system.shape, paths)
        if not _is_finite(x):
            raise ValueError(f"{name} contains NaN or infinity.")
        arrays.append(x.astype(dtype, copy=False).reshape(-1, system.dim))
    check_start(system, *np.broadcast_arrays(*arrays))

    def states(x: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return np.broadcast_to(x, (len(numbers), system.dim)) if len(x) == 1 else x[numbers]

    common = (arrays[0], arrays[1]) if all(len(x) == 1 for x in arrays) else None
    return InitialStates(
        lambda numbers: (states(arrays[0], numbers), states(arrays[1], numbers)), common
    )


def start_pair(initial: Any) -> tuple[Any, Any]:
    """An initial state as the pair (q0, p0) that it must be."""
    if not (isinstance(initial, tuple | list) and len(initial) == 2):
        hint = " Write START.random or START.quiet()." if hasattr(initial, "quiet") else ""
        given = type(initial).__name__
        if isinstance(initial, tuple | list):
            given += f" of length {len(initial)}"
            hint = " Momenta at rest are np.zeros_like(q0)." if len(initial) == 1 else ""
        raise TypeError(
            "the initial state must be a pair (q0, p0), for dim=1 for example ([2.0], [0.0]), or "
            f"a function sampler(key), not {given}.{hint}"
        )
    return initial[0], initial[1]


def _is_finite(x: np.ndarray) -> bool:
    """Whether all entries are finite: so they are if their sum is, which needs no other array."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(x))) or bool(np.all(np.isfinite(x)))


def ask_start(system: System, initial: Any) -> None:
    """Let an initial state, or what a sampler is a method of, refuse a system it is not made for.

    It does so by a method `begins_in(system)`, which of a pair (q, p) is that of q.
    """
    first = initial[0] if isinstance(initial, tuple | list) and initial else initial
    begins_in = getattr(getattr(first, "__self__", first), "begins_in", None)
    if callable(begins_in):
        begins_in(system)


def check_state_shape(name: str, shape: tuple[int, ...], one: tuple[int, ...], paths: int) -> None:
    """Refuse initial states of another shape than that of one path or of all."""
    if shape not in (one, (paths, *one)):
        says = "an initial state is (q, p), for dim=1 for example ([2.0], [0.0])."
        if shape[1:] == one and shape[0]:
            says = f"for {shape[0]} paths write paths={shape[0]}."
        raise ValueError(
            f"{name} must have shape {one} (all paths alike) or {(paths, *one)}, not {shape}: "
            f"{says}"
        )


def example_key() -> Any:
    """A key of the kind that samplers are called with."""
    return jax.random.key(0, impl="threefry2x32")


def sampled_state(
    sampler: Callable[[Any], Any], shape: tuple[int, ...], key: Any
) -> tuple[Any, Any]:
    """What a sampler gives for a key, as a pair of flat arrays, checked."""
    drawn = sampler(key)
    wanted = f"the sampler must return (q, p), each of shape {shape}"
    if not (isinstance(drawn, tuple | list) and len(drawn) == 2):
        raise ValueError(f"{wanted}; it returns {drawn!r}.")
    pair = []
    for name, value in zip("qp", drawn, strict=True):
        try:
            x = jnp.asarray(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{wanted}; {name} is {value!r}.") from error
        if x.shape != shape:
            raise ValueError(f"{wanted}; {name} has shape {x.shape}.")
        check_real(f"{name} of the sampler", x)
        pair.append(x.reshape(-1))
    return pair[0], pair[1]


def _sampled(system: System, sampler: Any, seed: int, dtype: np.dtype) -> InitialStates:
    shape = system.shape
    try:
        traced = jax.make_jaxpr(lambda key: sampled_state(sampler, shape, key))(example_key())
    except TypeError as error:
        if "positional arg" not in str(error):
            raise
        raise TypeError(
            f"the sampler failed when called as sampler(key): {error}. A function without a key "
            "that gives (q0, p0) is called here: write initial()."
        ) from error
    if not reads_argument(traced, 0):
        raise ValueError(
            "the sampler does not use its key, so that all paths would start alike: draw from "
            "jax.random with it, e.g. jax.random.normal(key, (dim,))."
        )
    words = seed_words(seed)
    known_by = trace_key(traced)
    reads = captured(sampler, lambda: known_by or object())
    sample = _compiled(Keyed(sampler, (reads, known_by)), shape)

    def states(numbers: np.ndarray) -> tuple[Any, Any]:
        q, p = jax.tree.map(np.asarray, cast(sample(words, number_words(numbers)), dtype))
        is_fine = np.all(np.isfinite(q) & np.isfinite(p), axis=1)
        if not np.all(is_fine):
            k = int(np.argmin(is_fine))
            why = getattr(sampler, "why", None)
            raise BadStartError(
                (why and why(q[k], p[k], int(numbers[k])))
                or f"the sampler gave NaN or infinity for path {numbers[k]}: (q, p) = "
                f"{q[k]}, {p[k]}. A rejection sampler does so if its density "
                "exceeds the bound that it was given, is negative or NaN, or if no point was "
                "accepted in all its tries."
            )
        check_start(system, q, p, numbers)
        return q, p

    return InitialStates(states)


@bounded(32)
def _compiled(sampler: Keyed, shape: tuple[int, ...]) -> Callable[..., Any]:
    """The sampler for many paths, compiled when it is first called; the seed is data."""

    def one(words: Any, path: Any) -> tuple[Any, Any]:
        return sampled_state(sampler.value, shape, initial_key(words, path))

    return jax.jit(jax.vmap(one, in_axes=(None, 0)))


def rejection_sampler(
    density: Callable[[Any, Any], Any],
    low: tuple[Any, Any],
    high: tuple[Any, Any],
    bound: float,
    tries: int = 100_000,
) -> Callable[[Any], tuple[Any, Any]]:
    """A sampler of initial states from an unnormalised density in a box.

    Points are drawn uniformly from the box and accepted with probability density / bound.

    Args:
        density: function of (q, p), each of the shape of the box, with a scalar result ≥ 0.
        low: lower ends (q, p) of the box, each of shape (dim,), or the shape of the system.
        high: upper ends (q, p) of the box.
        bound: an upper bound of the density in the box; the smaller, the fewer tries.
        tries: give up a path after so many points.

    Returns:
        `sampler(key) -> (q, p)` for `da.simulate`. Where the density turns out to exceed the
        bound or to be negative or NaN, or no point is accepted, it gives NaN, which `da.simulate`
        refuses.
    """
    require_callable(density, "(q, p)")
    ends = _box(low, high)
    if not (np.isfinite(bound) and bound > 0):
        raise ValueError(f"bound must be a positive number, not {bound!r}.")
    if not (isinstance(tries, int) and 1 <= tries < 2**31):
        raise ValueError(f"tries must be a whole number from 1 to 2³¹ − 1, not {tries!r}.")

    def sampler(key: Any) -> tuple[Any, Any]:
        kind = jnp.result_type(float)
        # NumPy constants inside a loop keep their float64, also where the run has float32.
        box = [[jnp.asarray(x, kind) for x in pair] for pair in ends]

        def unfinished(state: Any) -> Any:
            _, _, accepted, number = state
            return ~accepted & (number < tries)

        def attempt(state: Any) -> Any:
            _, _, _, number = state
            *keys, coin = jax.random.split(jax.random.fold_in(key, number), 3)
            q, p = (
                jax.random.uniform(k, a.shape, kind, a, b)
                for k, a, b in zip(keys, *box, strict=True)
            )
            value = jnp.asarray(density(q, p))
            if value.shape != ():
                raise ValueError(f"the density must be one number, not of shape {value.shape}.")
            is_wrong = ~((value >= 0) & (value <= bound))
            accepted = is_wrong | (jax.random.uniform(coin) * bound < value)
            poison = jnp.where(is_wrong, jnp.nan, 0.0)
            return q + poison, p + poison, accepted, number + 1

        none = jnp.full(ends[0][0].shape, jnp.nan, kind)
        q, p, accepted, _ = lax.while_loop(
            unfinished, attempt, (none, none, jnp.array(False), jnp.int32(0))
        )
        return jnp.where(accepted, q, jnp.nan), jnp.where(accepted, p, jnp.nan)

    return sampler


def _box(low: Any, high: Any) -> list[list[np.ndarray]]:
    """The ends [[q, p], [q, p]] of a box, checked."""
    message = "low and high must be pairs (q, p) of arrays of shape (dim,), or that of the system"
    if any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in (low, high)):
        raise ValueError(f"{message}, not {low!r} and {high!r}.")
    ends = [[np.asarray(x, np.float64) for x in pair] for pair in (low, high)]
    if any(x.shape != ends[0][0].shape or x.ndim == 0 for pair in ends for x in pair):
        raise ValueError(f"{message}, not {low!r} and {high!r}.")
    for a, b in zip(*ends, strict=True):
        if not np.all((a < b) & np.isfinite(a) & np.isfinite(b)):
            raise ValueError(
                f"every lower end of the box must be finite and below its upper end: {a}, {b}."
            )
    return ends


def inverse_cdf_sampler(
    density: Callable[[Any], Any], low: float, high: float, points: int = 4096
) -> Callable[[Any], Any]:
    """A sampler of one number from an unnormalised density on an interval.

    The distribution function is tabulated by Simpson's rule and inverted; between the points the
    density is taken to be linear, so the error of the sampled density is of second order in their
    distance. There are more points where they change the variance, and a density that is too narrow
    for the interval is refused.

    Args:
        density: function of one number with a scalar result ≥ 0.
        low: lower end of the interval.
        high: upper end.
        points: number of intervals of the table at least.

    Returns:
        `draw(key) -> x`, to be used inside a sampler `key -> (q, p)`.
    """
    quantile = quantile_function(density, low, high, points)

    def draw(key: Any) -> Any:
        return quantile(jax.random.uniform(key, dtype=jnp.result_type(float)))

    return draw
