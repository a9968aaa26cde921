"""Ready-made constraints g(q) = 0 for `da.System(..., constraints=g)`.

Each is a function of q, and of parameters if the system has any, which it does not read.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["distances", "missed_length", "on_surface", "rigid", "together"]

Constraint = Callable[..., Any]


def distances(pairs: Sequence[tuple[int, int]], lengths: Any) -> Constraint:
    """Fixed distances of pairs of points: (|q_i − q_j|² − l²)/2l = 0, for q of shape (N, d).

    Args:
        pairs: numbers (i, j) of the points, counted from 0.
        lengths: one length for all pairs, or one for each.
    """
    places = _pairs(pairs)
    sizes = _lengths(lengths, len(places))

    def g(q: Any, *params: Any) -> Any:
        _check_axes("distances", q, (2,), "(N, d)")
        _check_points("distances", places, q.shape[0], f"q of shape {q.shape} has")
        return missed_length(q[places[:, 0]] - q[places[:, 1]], sizes)

    return g


def rigid(lengths: Mapping[tuple[int, int], float]) -> Constraint:
    """Rigid bodies of k points each, by distances in a body, for q of shape (N, k, d).

    Args:
        lengths: the distances of points (i, j) of a body. They must not follow from each other: a
            body in d dimensions has dk − d(d + 1)/2 of them, three points in space have 3.
    """
    places = _pairs(list(lengths))
    sizes = _lengths(list(lengths.values()), len(places))

    def g(q: Any, *params: Any) -> Any:
        _check_axes("rigid", q, (3,), "(N, k, d)")
        _check_points("rigid", places, q.shape[1], f"every body of q of shape {q.shape} has")
        return missed_length(between(q, places), sizes[None]).reshape(-1)

    return g


def on_surface(phi: Callable[[Any], Any]) -> Constraint:
    """Every point on a surface phi(x) = 0, for q of shape (d,) or (N, d).

    Args:
        phi: a function of one point, shape (d,), to one number; its gradient must not vanish where
            it does.
    """
    if not callable(phi):
        raise TypeError(f"phi must be a function of one point, not {phi!r}.")

    def g(q: Any, *params: Any) -> Any:
        _check_axes("on_surface", q, (1, 2), "(d,) or (N, d)")
        return jax.vmap(phi)(q[None] if q.ndim == 1 else q)

    return g


def together(*constraints: Constraint) -> Constraint:
    """All of some constraints."""
    if not constraints or not all(map(callable, constraints)):
        raise TypeError(f"together takes functions g(q) -> (c,), not {constraints!r}.")

    def g(q: Any, *params: Any) -> Any:
        return jnp.concatenate([one(q, *params) for one in constraints])

    return g


def between(q: Any, pairs: Any) -> Any:
    """Distances from points j to points i of bodies, (N, k, d) to (N, pairs, d), for pairs (i, j).

    Points are split, not sliced, because the derivative of that is one copy, not one for each.
    """
    points = [x[:, 0] for x in lax.split(q, (1,) * q.shape[1], axis=1)]
    return jnp.stack([points[i] - points[j] for i, j in pairs], axis=1)


def missed_length(between: Any, lengths: Any) -> Any:
    """(|r|² − l²)/2l, which is |r| − l near zero, and smooth everywhere."""
    sizes = jnp.asarray(lengths, between.dtype)
    return (jnp.sum(between * between, axis=-1) - sizes**2) / (2 * sizes)


def _check_axes(name: str, q: Any, axes: tuple[int, ...], form: str) -> None:
    if q.ndim not in axes:
        raise ValueError(f"{name} is for q of shape {form}, not {q.shape}: write dim={form}.")


def _check_points(name: str, places: np.ndarray, count: int, has: str) -> None:
    if np.max(places) >= count:
        raise ValueError(
            f"{name} has point {np.max(places)}, counted from 0, but {has} {count} points: the "
            f"last is {count - 1}."
        )


def _pairs(pairs: Any) -> np.ndarray:
    found = np.asarray(pairs)
    if found.ndim != 2 or found.shape[1] != 2 or found.dtype.kind not in "iu":
        raise ValueError(f"pairs must be pairs of numbers of points, e.g. [(0, 1)], not {pairs!r}.")
    if np.any(found[:, 0] == found[:, 1]) or np.any(found < 0):
        raise ValueError(f"a pair must be of two points, counted from 0: {pairs!r}.")
    _, counts = np.unique(np.sort(found, axis=1), axis=0, return_counts=True)
    if np.any(counts > 1):
        raise ValueError(f"a pair is given twice, which makes constraints redundant: {pairs!r}.")
    return found


def _lengths(lengths: Any, count: int) -> np.ndarray:
    sizes = np.asarray(lengths, np.float64)
    if sizes.shape not in ((), (count,)) or not np.all((sizes > 0) & np.isfinite(sizes)):
        raise ValueError(f"lengths must be one positive number, or {count}, not {lengths!r}.")
    return np.broadcast_to(sizes, (count,)).copy()
