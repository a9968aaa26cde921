"""Whether steps see how a system is driven in time, before their sizes are compared.

Steps as long as a whole number of periods see one phase of a drive, and so do those of half their
length: they agree with each other, and are wrong. A short pulse may lie between all the times that
they look at.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import kept
from dalembert.driven import Timed
from dalembert.ensemble.initial import example_key, sampled_state
from dalembert.fields import ALL, DRIFT_TERMS, NOISE_TERMS
from dalembert.precision import cast
from dalembert.system import System

__all__ = ["sees_drive"]

INSTANTS, NUMBERS, LEAST = 2**17, 2**23, 4
"""Times at which a drive is looked at, fewer of large systems, for so many numbers of all of them;
and in half a step, without its ends. Of steps that are too many for that nothing is said."""

PIECE = 2**20
"""Numbers that are compared at a time, for the memory."""

UNSEEN, SMALL = 0.02, 1e-6
"""Part of all that the drive changes that may lie beside lines from the ends of steps to their
middles: twelve steps in a period leave less. Or that part of the force itself."""

ASKEW = 0.3
"""How far from a start forces are looked at, too: a drive may vanish in a state that is special."""


def sees_drive(system: System, initial: Any, t_end: float, steps: int) -> bool:
    """Whether lines from the ends of so many steps to their middles are what a drive does.

    Forces and noises are looked at where a path starts and near there, as they change in time.
    """
    if not system.time:
        return True
    size, halves = 4 * int(system.dim) * (2 if system.noises else 1), 2 * steps
    count = min(INSTANTS, 1 << max(NUMBERS // size, 1).bit_length() - 1)
    every = (count - 1) // halves - 1
    if every < LEAST:
        return True
    places = np.arange(halves * every)
    # Not at equal distances, which may be whole periods as well.
    share = ((places % every + (places * 0.6180339887498949) % 1) / every).reshape(halves, every)
    t = np.arange(halves)[:, None] + np.pad(share, ((0, 0), (1, 0)))
    t = np.append(t, np.full(count - t.size, halves)) * (t_end / halves)
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        q, p = _state(system, initial)
        params = cast(system.params, np.dtype(np.float64))
        found = np.asarray(_over_time(system.shared)(t, q, p, params)).reshape(count, -1)
    last, found = found[-1:], found[: halves * (every + 1)].reshape(halves, every + 1, -1)
    pieces = np.array_split(np.arange(found.shape[-1]), max(found.size // PIECE, 1))
    return all(_is_seen(found[..., some], last[:, some], share[..., None]) for some in pieces)


def _is_seen(found: np.ndarray, last: np.ndarray, share: np.ndarray) -> bool:
    """Whether numbers, shape (halves, times, numbers), are near lines between those at ends."""
    begins, inside = found[:, 0], found[:, 1:]
    # Forces may be infinite near a start, or no number at one time: others are looked at.
    with np.errstate(over="ignore", invalid="ignore"):
        rise = np.concatenate([begins[1:], last]) - begins
        beside = inside - begins[:, None] - share * rise[:, None]
        change = inside - _mean(inside)
        unseen, most, whole = (_mean(np.abs(x)) for x in (beside, change, inside))
    return not np.any(unseen > np.maximum(UNSEEN * most, SMALL * whole))


def _mean(x: np.ndarray) -> np.ndarray:
    """The mean of what is finite over the first two axes, 0 of nothing."""
    is_finite = np.isfinite(x)
    total = np.sum(x, axis=(0, 1), where=is_finite)
    return total / np.maximum(np.sum(is_finite, axis=(0, 1)), 1)


def _state(system: System, initial: Any) -> tuple[np.ndarray, np.ndarray]:
    """Where a path starts, and a state near there, each of shape (2, dim)."""
    if callable(initial):
        initial = sampled_state(initial, system.shape, example_key())
    rows = [np.ravel(np.asarray(x, np.float64)) for x in initial]
    near = [x + ASKEW * np.cos(1 + np.arange(len(x)) + i) for i, x in enumerate(rows)]
    return np.stack([rows[0], near[0]]), np.stack([rows[1], near[1]])


@kept
def _over_time(system: System) -> Any:
    """A compiled function of times and states: all forces, and the sum of all noises.

    That has a weight for each, so that alike or opposite ones do not cancel each other.
    """
    fields = system.fields
    weights = np.random.default_rng(0).uniform(0.5, 1.5, fields.noises)

    def at(t: Any, q: Any, p: Any, params: Any) -> Any:
        told = q, p, Timed(t, params)

        def of(kinds: Any, i: int, *w: Any) -> Any:
            terms = (fields.term((kind, i)) for kind in kinds)
            return [jnp.zeros_like(q) if term is None else term(*told, *w) for term in terms]

        def together(velocity: Any, *forces: Any) -> Any:
            return jnp.stack([velocity, sum(forces)])

        parts = [together(*of(DRIFT_TERMS, 0))]
        if fields.is_joint:
            parts.append(together(*of(NOISE_TERMS, ALL, jnp.asarray(weights, q.dtype))))
        elif fields.noises:
            each = enumerate(weights.tolist())
            parts.append(sum(weight * together(*of(NOISE_TERMS, i)) for i, weight in each))
        return jnp.stack(parts)

    of_states = jax.vmap(at, in_axes=(None, 0, 0, None))
    return jax.jit(jax.vmap(of_states, in_axes=(0, None, None, None)))
