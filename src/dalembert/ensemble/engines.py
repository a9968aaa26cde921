"""Which engine takes the fast steps of a run, and why not a faster one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dalembert.ensemble.arrays import Arrays
from dalembert.ensemble.compiled import Xla
from dalembert.ensemble.engine import Engine, OnBlock, OtherDeviceError, RefusedError, Steps
from dalembert.ensemble.kernel_engine import KernelInRegisters
from dalembert.ensemble.vector_code import VectorCode

ENGINES: tuple[Engine, ...] = (VectorCode(), KernelInRegisters(), Xla(), Arrays())
"""From the fastest on."""


class Choice(NamedTuple):
    """The engine of a run, its compiled steps, and the faster ones of its device that refused."""

    engine: Engine
    on_block: OnBlock
    refused: dict[str, str]

    @property
    def name(self) -> str:
        return self.engine.name

    def means_at_end(self, kernel: Any, steps: Steps) -> Any:
        """What the engine has for means at the end of a run, if anything."""
        make = getattr(self.engine, "means_at_end", None)
        return None if make is None else make(kernel, steps)


def choose_engine(steps: Steps, engines: Sequence[Engine]) -> Choice:
    """The first engine that can take the steps, and why those before it cannot."""
    refused: dict[str, str] = {}
    elsewhere: dict[str, str] = {}
    for engine in engines:
        try:
            return Choice(engine, engine.compile(steps), refused)
        except OtherDeviceError as reason:
            elsewhere[engine.name] = str(reason)
        except RefusedError as reason:
            refused[engine.name] = str(reason)
    reasons = "; ".join(f"{name}: {reason}" for name, reason in (refused | elsewhere).items())
    raise ValueError(f"no engine can take these steps. {reasons}.")


def find_engines(given: Any) -> Sequence[Engine]:
    """What `engine=` means: None, an engine, the name of one, or several of these in order."""
    if given is None:
        return ENGINES
    if isinstance(given, list | tuple):
        return [engine for one in given for engine in find_engines(one)]
    if isinstance(given, str):
        found = [engine for engine in ENGINES if engine.name == given]
        if not found:
            names = ", ".join(repr(engine.name) for engine in ENGINES)
            raise ValueError(f"engine must be one of {names} or an object, not {given!r}.")
        return found
    if not (hasattr(given, "compile") and isinstance(getattr(given, "name", None), str)):
        raise TypeError(
            f"engine must have a name and a method compile(steps), which {given!r} has not."
        )
    return [given]
