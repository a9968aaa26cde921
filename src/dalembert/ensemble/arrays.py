"""The engine of steps on whole arrays."""

from dalembert.ensemble.compiled import by_xla
from dalembert.ensemble.engine import OnBlock, Steps
from dalembert.ensemble.march import march_fast
from dalembert.ensemble.rounds import march_in_rounds


class Arrays:
    """Steps on whole arrays, for systems with too many degrees of freedom to be written out."""

    name = "arrays (XLA)"

    def compile(self, steps: Steps) -> OnBlock:
        return by_xla(steps, march_fast if steps.backend == "cpu" else march_in_rounds)
