"""What every tableau shares: coefficients that are checked, immutable, comparable and printable."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from fractions import Fraction
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dalembert.methods.conditions import Array
from dalembert.methods.method import Convergence, Method

Number = float | Fraction | np.floating[Any]

if TYPE_CHECKING:

    class Matrix:
        """A field that takes nested sequences of numbers and gives back a float64 array."""

        def __get__(self, instance: object, owner: type | None = None) -> Array: ...
        def __set__(self, instance: object, value: Sequence[Sequence[Number]] | Array) -> None: ...

    class Vector:
        """A field that takes a sequence of numbers and gives back a float64 array."""

        def __get__(self, instance: object, owner: type | None = None) -> Array: ...
        def __set__(self, instance: object, value: Sequence[Number] | Array) -> None: ...

else:
    Matrix = Vector = Array

#: How the paper writes an array; those that are not here are written by their names.
SYMBOLS = {
    **{"alpha": "α", "alpha_hat": "α̂", "beta": "β", "beta_hat": "β̂", "omega": "ω", "zeta": "ζ"},
    **{"a_bar": "ā", "a_hat": "â", "b_bar": "b̄", "b_hat": "b̂", "beta1": "β1", "beta2": "β2"},
    **{"a0": "a⁰", "a1": "a¹", "b0": "b⁰", "b1": "b¹", "b3": "b³"},
}

#: Sums of weights may miss their value by this much, relative to what is added up: rounding of
#: any sensible tableau, not more.
SUM_TOLERANCE = 1e-12

# 1/x for x up to 64 covers every fraction in use; a float that agrees with one of them to 1e-15
# by accident would need a coincidence of about 1 in 10^12.
_LARGEST_DENOMINATOR = 64


def number_text(x: float) -> str:
    """Write ``x`` as a fraction where it is recognisably one, else with six digits.

    >>> number_text(0.5), number_text(-1 / 3), number_text(3**0.5)
    ('1/2', '-1/3', '1.73205')
    """
    fraction = Fraction(x).limit_denominator(_LARGEST_DENOMINATOR)
    if abs(float(fraction) - x) <= 1e-15 * max(1.0, abs(x)):
        return str(fraction)
    return f"{x:.6g}"


def counted(n: int, noun: str) -> str:
    """A number and what it counts, in the plural if need be."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def parameter(name: str, value: Any) -> float:
    """A free parameter of a family of methods, as a float."""
    try:
        if isinstance(value, str):
            raise TypeError("text")
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} must be a real number that is known when the tableau is built, such as 0.5, "
            f"not {value!r}"
        ) from error


def text_width(text: str) -> int:
    """Columns of ``text`` on a terminal: two for a wide letter, none for the bar of b̄."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return wide + sum(not unicodedata.combining(letter) for letter in text)


def gauss_coefficients() -> list[list[Number]]:
    """The matrix of Gauss' method of two stages; its weights are (½, ½)."""
    quarter, shift = Fraction(1, 4), sqrt(3) / 6
    return [[quarter, 0.25 - shift], [0.25 + shift, quarter]]


class Tableau(Method):
    """Base of families of coefficients; a subclass is a frozen dataclass that names its arrays.

    Two tableaus are equal, and hash alike, when type, name and every coefficient agree bit for
    bit, so a tableau can be a cache key or a static argument of ``jax.jit``.
    """

    alpha: Vector
    convergence: ClassVar[Convergence]
    # The s x s matrices, the weight vectors, and the sums that consistency asks of the weights.
    # Every family has the vector alpha; its length is the number of stages. As it is here, a family
    # has one matrix.
    _matrices: ClassVar[tuple[str, ...]] = ("a",)
    _vectors: ClassVar[tuple[str, ...]] = ("alpha",)
    _sums: ClassVar[dict[str, float]] = {"alpha": 1.0}
    # Rows of the printed tableau: pairs (matrix, weights below it), None where nothing is printed.
    _layout: ClassVar[tuple[tuple[tuple[str | None, str | None], ...], ...]] = ((("a", "alpha"),),)
    _explicit: ClassVar[bool] = False

    def __post_init__(self) -> None:
        arrays = {
            key: self._coerce(key, getattr(self, key)) for key in self._matrices + self._vectors
        }
        self._check_shapes(arrays)
        self._check_finite(arrays)
        self._check_sums(arrays)
        if self._explicit:
            self._check_explicit(arrays)
        for key, array in arrays.items():
            array.setflags(write=False)
            object.__setattr__(self, key, array)

    @property
    def stages(self) -> int:
        """Number of stages s."""
        return len(self.alpha)

    @property
    def coefficients(self) -> dict[str, Array]:
        """All arrays by name."""
        return {key: getattr(self, key) for key in self._matrices + self._vectors}

    def to_dict(self) -> dict[str, Any]:
        """Everything needed to write the tableau down again, in types that JSON knows."""
        arrays = {key: array.tolist() for key, array in self.coefficients.items()}
        others = {k: value for k, value in super().to_dict().items() if k not in arrays}
        return others | {"stages": self.stages, "coefficients": arrays}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tableau):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, stages={self.stages})"

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.family}, {counted(self.stages, 'stage')}"]
        for row in self._layout:
            lines += ["", *self._draw(row)]
        return "\n".join(lines)

    def _key(self) -> tuple[Any, ...]:
        arrays = self.coefficients
        others = (value for k, value in vars(self).items() if k not in arrays)
        return (type(self), *others, *(a.tobytes() for a in arrays.values()))

    def _coerce(self, key: str, value: Any) -> Array:
        try:
            if np.iscomplexobj(value):
                raise TypeError("complex numbers")
            # Adding zero turns -0.0 into 0.0, so that equal numbers have equal bytes.
            return np.array(value, dtype=np.float64) + 0.0
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{self._who()}: {key} must be a rectangular array of real "
                f"numbers that are known when the tableau is built, got {value!r} ({error})"
            ) from error

    def _check_shapes(self, arrays: dict[str, Array]) -> None:
        alpha = arrays["alpha"]
        if alpha.ndim != 1 or alpha.size == 0:
            raise ValueError(
                f"{self._who()}: alpha must have shape (s,) with s >= 1 stages, "
                f"got shape {alpha.shape}"
            )
        s = alpha.size
        wanted = {key: (s, s) for key in self._matrices} | {key: (s,) for key in self._vectors}
        wrong = [
            f"{key} has shape {arrays[key].shape}, needed {shape}"
            for key, shape in wanted.items()
            if arrays[key].shape != shape
        ]
        if wrong:
            raise ValueError(
                f"{self._who()}: alpha has {s} entries, so the method has "
                f"s = {s} stages; " + "; ".join(wrong)
            )

    def _check_finite(self, arrays: dict[str, Array]) -> None:
        bad = [key for key, array in arrays.items() if not np.isfinite(array).all()]
        if bad:
            raise ValueError(f"{self._who()}: entries that are not finite in {', '.join(bad)}")

    def _check_sums(self, arrays: dict[str, Array]) -> None:
        wrong = [
            f"sum of {key} = {arrays[key].sum():.17g}, needed {total:g}"
            for key, total in self._sums.items()
            if abs(arrays[key].sum() - total) > SUM_TOLERANCE * max(1.0, np.abs(arrays[key]).sum())
        ]
        if wrong:
            raise ValueError(f"{self._who()} is not consistent: " + "; ".join(wrong))

    def _check_explicit(self, arrays: dict[str, Array]) -> None:
        wrong = [key for key in self._matrices if np.triu(arrays[key]).any()]
        if wrong:
            raise ValueError(
                f"{self._who()} is explicit, so its matrices must be strictly "
                f"lower triangular; entries on or above the diagonal in {', '.join(wrong)}. "
                "Implicit methods are written as MeanSquareTableau or WeakTableau"
            )

    def _draw(self, row: tuple[tuple[str | None, str | None], ...]) -> list[str]:
        blocks = [self._draw_block(matrix, weights) for matrix, weights in row]
        return ["  " + " | ".join(parts).rstrip() for parts in zip(*blocks, strict=True)]

    def _draw_block(self, matrix: str | None, weights: str | None) -> list[str]:
        s = self.stages
        body = np.empty((0, s)) if matrix is None else getattr(self, matrix)
        foot = np.empty((0, s)) if weights is None else getattr(self, weights)[None, :]
        cells = [[number_text(float(x)) for x in line] for line in (*body, *foot)]
        width = max(len(text) for line in cells for text in line)
        lines = [" ".join(text.rjust(width) for text in line) for line in cells]
        head = " over ".join(SYMBOLS.get(key, key) for key in (matrix, weights) if key is not None)
        across = max(text_width(head), len(lines[0]))
        rule = ["-" * across] if matrix is not None and weights is not None else []
        split = len(body)
        parts = [head, *lines[:split], *rule, *lines[split:]]
        return [part + " " * (across - text_width(part)) for part in parts]
