"""What an engine is: code that takes the fast steps of a run.

An engine is an object with a name and one method:

    compile(steps) -> on_block
    on_block(block) -> march
    march(state, first, count) -> state, hard

`march` takes all paths of a block through `count` steps. Paths that have solved their equations and
are finite come back after these steps, with what they have to report; the others, and those that
had failed before, come back as they were, the former marked in `hard` (a boolean array, or None if
there are none, or a function that gives one of these when it is called, so that a device need not
stop after every stretch). An engine that cannot take some steps raises `RefusedError` with the
reason. One that can do more than march may have a method `means_at_end(kernel, steps)`: what takes
the means of runs that are looked at once, at their end (`native_means.py`), or None.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dalembert.ensemble.march import Block, Fast, PathState
from dalembert.noise import Noise
from dalembert.stepping.propagator import Maps, Propagator
from dalembert.stepping.stepper import Stepper

March = Callable[[PathState, int, int], tuple[PathState, Any]]
OnBlock = Callable[[Block], March]


def known(hard: Any) -> np.ndarray | None:
    """Which paths have to take a stretch again, after waiting for it if need be."""
    found: Any = hard() if callable(hard) else hard
    return found


class RefusedError(Exception):
    """An engine cannot take some steps; the message is the reason."""


class OtherDeviceError(RefusedError):
    """An engine is not for the device of the run, whatever the steps."""


@dataclass(frozen=True)
class Steps:
    """The steps of a run, as an engine is asked to take them.

    Attributes:
        stepper: the method made for the system.
        noise: what the steps are driven by.
        params: parameters of the system.
        maps: matrices that the steps are, if they are that.
        needs: increments that the method reads.
        paths: paths of a block.
        backend: JAX's name of the kind of device.
        is_spread: whether a state lies on several devices.
    """

    stepper: Stepper
    noise: Noise
    params: Any
    maps: Maps | None
    needs: frozenset[str]
    paths: int
    backend: str
    is_spread: bool = False

    @property
    def fast(self) -> Fast:
        """What takes a fast step: the stepper, or its matrices."""
        return self.stepper if self.maps is None else Propagator(self.stepper)

    @property
    def fast_noise(self) -> Noise:
        """What fast steps are driven by."""
        return self.noise if self.maps is None else Propagator.noise

    def told(self, block: Block) -> Block:
        """What the paths of a block are told for fast steps."""
        if self.maps is None:
            return block
        return block._replace(params=block.maps, noise=self.fast_noise)


class Engine(Protocol):
    """Code that takes the fast steps of a block; see the top of this module."""

    name: str

    def compile(self, steps: Steps) -> OnBlock:
        """The steps, ready to be taken by any block; RefusedError if that cannot be."""
        ...
