"""When a step takes the terms of a driven system, and the clocks that its states carry.

Time is a position that moves with the drift at the speed 1, so the time of a stage is what its row
of positions says: c_i = Σ_j a_ij, whichever method it is. Momenta at a stage do not count.
"""

from functools import reduce
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from dalembert.dependence import Degree
from dalembert.driven import degree_in_time, refusal
from dalembert.elementary import absolute
from dalembert.methods import Method
from dalembert.methods.stages import DT, Row, StageSystem
from dalembert.system import System


class Clocked:
    """A stepper whose states have a clock beside them if its system is driven.

    Its entry with q is the time when the path began, that with p the number of steps since then:
    so the time of a step has no rounding of many sums. On scalars it is one more of them; arrays
    and their clock are a pair.
    """

    system: Any
    is_scalar: Any

    sees_states: ClassVar[bool] = True
    """Whether statistics see the states as they are."""

    def seen(self, q: Any, p: Any, dt: Any, params: Any) -> tuple[Any, Any]:
        """What statistics see of paths, shape (paths, dim): their states."""
        return q, p

    def split(self, x: Any) -> tuple[Any, Any]:
        """A state that has been entered without its clock, and the entry of that, or None."""
        if not self.system.time:
            return x, None
        if not isinstance(x, tuple) or len(x) != (self.system.entries if self.is_scalar else 2):
            raise refusal(self.system)
        return (x[:-1], x[-1]) if self.is_scalar else x

    def append(self, x: Any, entry: Any) -> Any:
        """A state with its entry of the clock, as `split` takes them apart; alone for None."""
        if entry is None:
            return x
        return (*x, entry) if self.is_scalar else (x, entry)

    def now(self, q: Any, p: Any, dt: Any, part: float = 0.0) -> Any:
        """The time when this part of a step from a state has passed; None for systems without time.

        One form for the end of a step and the beginning of the next: they are computed once.
        """
        (_, start), (_, steps) = self.split(q), self.split(p)
        return None if start is None else start + (steps + part if part else steps) * dt

    def is_finite(self, q: Any, p: Any) -> Any:
        """Whether a state that has been entered is finite; whether each of many is."""
        sizes = [absolute(x) for x in jax.tree.leaves((self.split(q)[0], self.split(p)[0]))]
        if not self.is_scalar:
            sizes = [jnp.sum(x, axis=-1) for x in sizes]
        return jnp.isfinite(reduce(jnp.add, sizes))

    def entered(self, x: Any) -> Any:
        """A flat state, shape (..., entries), in the array regime as steps take it."""
        if not self.system.time:
            return x
        if x.shape[-1] != self.system.entries:
            raise refusal(self.system)
        return x[..., :-1], x[..., -1]


def with_times(system: System, method: Method, stages: StageSystem, z: Any) -> StageSystem:
    """Rows of a method whose terms have the times at which they are taken, as parts of a step.

    A term that does not depend on time is taken at the beginning: what is equal should look equal.
    """
    clocks = [row_time(method, row) for row in stages.q_rows]
    terms = {entry.term for entry in stages.entries}
    moving = {term for term in terms if degree_in_time(system, term, z) > Degree.CONSTANT}

    def timed(row: Row) -> Row:
        return tuple(
            e._replace(term=(*e.term[:2], clocks[e.q_row] if e.term in moving else 0.0))
            for e in row
        )

    return StageSystem(tuple(map(timed, stages.q_rows)), tuple(map(timed, stages.p_rows)))


def row_time(method: Method, row: Row) -> float:
    """How far the time of a row is from the beginning of the step, in steps."""
    along_drift = [entry for entry in row if entry.term == ("H_p", 0)]
    for entry in along_drift:
        if entry.increment != DT:
            raise ValueError(
                f"{method.name} cannot take systems that are driven in time: it moves positions "
                f"along the drift by {entry.increment.name!r}, which is no part of dt."
            )
    # Rounded, so that sums of thirds are 1.
    return round(float(sum(entry.weight for entry in along_drift)), 15)
