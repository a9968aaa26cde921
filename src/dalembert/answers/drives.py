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
from dalembert.precision import cast
from dalembert.system import System

__all__ = ["sees_drive"]

INSTANTS, NUMBERS, LEAST = 2**17, 2**23, 4
"""Times at which a drive is looked at, fewer of large systems, for so many numbers of all of them;
and in half a step, without its ends. Of steps that are too many for that nothing is said."""

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
    size, halves = 4 * int(system.dim) * (1 + system.noises), 2 * steps
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
    begins, inside = found[:, 0], found[:, 1:]
    # Forces may be infinite near a start; of those nothing is said.
    with np.errstate(over="ignore", invalid="ignore"):
        rise = np.concatenate([begins[1:], last]) - begins
        beside = inside - begins[:, None] - share[..., None] * rise[:, None]
        change = inside - inside.mean(axis=(0, 1))
        unseen, most, whole = (np.abs(x).mean(axis=(0, 1)) for x in (beside, change, inside))
    return not np.any(unseen > np.maximum(UNSEEN * most, SMALL * whole))


def _state(system: System, initial: Any) -> tuple[np.ndarray, np.ndarray]:
    """Where a path starts, and a state near there, each of shape (2, dim)."""
    if callable(initial):
        initial = sampled_state(initial, system.shape, example_key())
    rows = [np.ravel(np.asarray(x, np.float64)) for x in initial]
    near = [x + ASKEW * np.cos(1 + np.arange(len(x)) + i) for i, x in enumerate(rows)]
    return np.stack([rows[0], near[0]]), np.stack([rows[1], near[1]])


@kept
def _over_time(system: System) -> Any:
    """A compiled function of times and states: all forces and noises."""
    fields, weights = system.fields, np.ones(system.noises)

    def at(t: Any, q: Any, p: Any, params: Any) -> Any:
        told = Timed(t, params)
        parts = [*fields._drift(q, p, told)]
        for i in fields.noise_numbers:
            args = (q, p, told, jnp.asarray(weights)) if fields.is_joint else (q, p, told)
            terms = (fields.term((kind, i)) for kind in ("h_p", "h_q", "f"))
            parts += [term(*args) for term in terms if term is not None]
        return jnp.stack(parts)

    of_states = jax.vmap(at, in_axes=(None, 0, 0, None))
    return jax.jit(jax.vmap(of_states, in_axes=(0, None, None, None)))
