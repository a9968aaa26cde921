"""When a step takes the terms of a driven system.

Time is a position that moves with the drift at the speed 1, so the time of a stage is what its row
of positions says: c_i = Σ_j a_ij, whichever method it is. Momenta at a stage do not count.
"""

from typing import Any

from dalembert.dependence import Degree
from dalembert.driven import degree_in_time
from dalembert.methods import Method
from dalembert.methods.stages import DT, Row, StageSystem
from dalembert.system import System

__all__ = ["clock", "with_times"]


def with_times(system: System, method: Method, stages: StageSystem, z: Any) -> StageSystem:
    """Rows of a method whose terms have the times at which they are taken, as parts of a step.

    A term that does not depend on time is taken at the beginning: what is equal should look equal.
    """
    clocks = [clock(method, row) for row in stages.q_rows]
    terms = {entry.term for entry in stages.entries}
    moving = {term for term in terms if degree_in_time(system, term, z) > Degree.CONSTANT}

    def timed(row: Row) -> Row:
        return tuple(
            e._replace(term=(*e.term[:2], clocks[e.q_row] if e.term in moving else 0.0))
            for e in row
        )

    return StageSystem(tuple(map(timed, stages.q_rows)), tuple(map(timed, stages.p_rows)))


def clock(method: Method, row: Row) -> float:
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
