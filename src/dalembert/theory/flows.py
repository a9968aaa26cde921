"""What the flow of a system keeps, tried at a few states."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dalembert.precision import with_precision
from dalembert.system import System
from dalembert.theory.evidence import Spot

ROUNDING = 1e-12
"""Relative change up to which something counts as kept."""

STATES, TIME = 3, 0.1


class Tried(NamedTuple):
    """What a flow does to a function of the state.

    Attributes:
        name: of the function.
        declared: whether the flow, or the system, says that it is kept.
        change: largest change relative to its size, over a few random states and noises.
        where: the state of the largest change.
    """

    name: str
    declared: bool
    change: float
    where: Spot

    @property
    def holds(self) -> bool:
        """Whether it is kept to rounding."""
        return self.change <= ROUNDING


def try_flow(system: System, seed: int = 0) -> tuple[Tried, ...]:
    """The relative change of everything that the flow should keep, and of H, in a short time."""
    flow, rng = system.flow, np.random.default_rng(seed)
    assert flow is not None, "it has been looked for"
    functions = {**flow.keeps, **system.invariants}
    declared = set(functions)
    if system.H not in functions.values():
        functions["H"] = system.H
    # A flow knows nothing of time, but functions of a driven system do.
    timed = {*system.invariants, "H"} - {*flow.keeps} if system.time else set()

    def changes(q: Any, p: Any, w: Any, params: Any) -> Any:
        q, p, w = map(jnp.asarray, (q, p, w))
        given, after = () if params is None else (params,), (q, p)
        for act in flow.maps:
            after = act(*after, w, jnp.asarray(TIME, q.dtype), *given)

        def change(name: str, fun: Any) -> Any:
            t = (jnp.asarray(TIME, q.dtype),) if name in timed else ()
            # Against the same with all momenta along one direction: a sum may vanish by chance.
            values = [fun(*state, *t, *given) for state in ((q, p), after, (q, jnp.abs(p)))]
            size = jnp.maximum(jnp.max(jnp.abs(values[0])), jnp.max(jnp.abs(values[2])))
            return jnp.max(jnp.abs(values[1] - values[0])) / size

        return [change(name, fun) for name, fun in functions.items()]

    found, states = [], []
    for _ in range(STATES):
        q, p = rng.standard_normal((2, *system.shape))
        states.append(Spot(*(tuple(map(float, np.ravel(z))) for z in (q, p))))
        w = np.sqrt(TIME) * rng.standard_normal(flow.noises)
        found.append(np.asarray(with_precision(changes, q, p, w, system.params)))
    # What is no number anywhere is not kept.
    changes_found = np.where(np.isnan(found), np.inf, found)
    worst = np.argmax(changes_found, axis=0)
    return tuple(
        Tried(name, name in declared, float(changes_found[at, i]), states[at])
        for i, (name, at) in enumerate(zip(functions, worst, strict=True))
    )
