"""The numbers of a study: the paper's, or others."""

from collections.abc import Mapping
from dataclasses import dataclass

LETTERS = {"nu": "ν", "mu": "μ", "D": "D", "E0": "E₀", "beta": "β", "sigma": "σ"}
ROOT_TWO = 2**0.5


@dataclass(frozen=True)
class Numbers:
    """Parameters of a system as they are in a study, and as the paper has them."""

    given: Mapping[str, float]
    paper: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        return self.given[name]

    @property
    def are_the_papers(self) -> bool:
        return dict(self.given) == dict(self.paper)

    def __str__(self) -> str:
        return ", ".join(f"{LETTERS[name]} = {_text(x)}" for name, x in self.given.items())

    def printed(self, text: str) -> str:
        """A text that is true of the paper's numbers, where they are these."""
        return text if self.are_the_papers else ""

    def notes(self, left_out: str, printed: tuple[str, ...]) -> tuple[str, ...]:
        """The notes on what the paper prints, or what is left out because its numbers are others.

        Args:
            left_out: which claims are left out, as a whole sentence.
            printed: notes that are about the paper's numbers.
        """
        if self.are_the_papers:
            return printed
        changed = (name for name in self.given if self.given[name] != self.paper[name])
        differences = ", ".join(
            f"{LETTERS[name]} = {_text(self.given[name])} instead of {_text(self.paper[name])}"
            for name in changed
        )
        return (f"These are not the paper's numbers: {differences}. {left_out}",)


def _text(value: float) -> str:
    return "√2" if value == ROOT_TWO else f"{value:g}"
