"""How a run is cut into parts that can be stopped, saved and tried again."""

from dataclasses import dataclass

import numpy as np

SAVES_PER_LEG = 32
"""Room for saves in a leg of a small system: few legs in a long run, little memory."""


@dataclass(frozen=True)
class Schedule:
    """How a run of `steps` steps, saved every `save_every`, is cut into units.

    Each unit saves first if a save is due, and then takes a stretch of steps, `longest_stretch` of
    them at most; the last unit only saves. A leg has room for `saves_per_leg` of them. With
    `at_end` the last save is the only one.
    """

    steps: int
    save_every: int
    longest_stretch: int
    saves_per_leg: int = SAVES_PER_LEG
    at_end: bool = False

    @property
    def per_stretch(self) -> int:
        """Steps per stretch: as many as leave the last stretch before a save full."""
        stretches = -(-self.save_every // self.longest_stretch)
        return -(-self.save_every // stretches)

    @property
    def units_per_save(self) -> int:
        return -(-self.save_every // self.per_stretch)

    @property
    def units(self) -> int:
        full, rest = divmod(self.steps, self.save_every)
        return full * self.units_per_save + -(-rest // self.per_stretch) + 1

    @property
    def save_steps(self) -> np.ndarray:
        """Step numbers of the saves: the start, every `save_every` steps, and the end."""
        if self.at_end:
            return np.array([self.steps])
        numbers = np.arange(self.saves) * min(self.save_every, self.steps)
        return np.minimum(numbers, self.steps)

    @property
    def saves(self) -> int:
        """How many saves there are."""
        return 1 if self.at_end else -(-self.steps // self.save_every) + 1

    def saves_before(self, unit: int) -> int:
        """How many saves the units before this one make."""
        if unit == self.units:
            return self.saves
        return 0 if self.at_end else -(-unit // self.units_per_save)

    def steps_before(self, unit: int) -> int:
        """How many steps the units before this one take."""
        segment, place = divmod(unit, self.units_per_save)
        return min(segment * self.save_every + place * self.per_stretch, self.steps)

    def stretch(self, unit: int) -> tuple[int, int]:
        """The first step of a unit, and how many it takes."""
        first = self.steps_before(unit)
        return first, self.steps_before(unit + 1) - first

    def is_save(self, unit: int) -> bool:
        """Whether a unit begins with a save."""
        is_regular = unit % self.units_per_save == 0 and not self.at_end
        return is_regular or unit == self.units - 1

    @property
    def shared_units(self) -> int:
        """Units that a run of more steps begins with too: from here it can go on to a later end."""
        full, rest = divmod(self.steps, self.save_every)
        return full * self.units_per_save + rest // self.per_stretch

    def end_of_leg(self, unit: int, wanted: int) -> int:
        """Where a leg of about so many units that starts here must end for lack of room."""
        room = (self.saves_before(unit) + self.saves_per_leg - 1) * self.units_per_save
        room = self.units if self.at_end else max(room, unit + 1)
        return min(unit + max(wanted, 1), room, self.units)
