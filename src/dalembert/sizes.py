"""How many: degrees of freedom and noises, as users give them."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np


def noise_lists(h: Any, f: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """h and f as tuples of one length; a missing list means that all its entries are zero."""
    for name, given in (("h", h), ("f", f)):
        if given is not None and not isinstance(given, list | tuple):
            hint = f"write {name}=[{name}]" if callable(given) else f"not {given!r}"
            raise TypeError(f"{name} must be a list, one function per Wiener process: {hint}.")
    count = len(h if h is not None else f if f is not None else ())
    h = (None,) * count if h is None else tuple(h)
    f = (None,) * count if f is None else tuple(f)
    if len(h) != len(f):
        raise ValueError(
            f"h has {len(h)} entries and f has {len(f)}: both need one entry per Wiener process. "
            "Use None for a term that is zero, or leave the whole list out."
        )
    return h, f


class Size(int):
    """A number of entries that remembers the shape of the array that they form."""

    shape: tuple[int, ...]

    def __new__(cls, shape: tuple[int, ...]) -> "Size":
        size = super().__new__(cls, prod(shape))
        size.shape = shape
        return size

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.shape,)


def size_of(name: str, what: str, given: Any, hint: str = "") -> Size:
    """A positive integer, or a shape of several."""
    if isinstance(given, Size):
        return given
    shape = tuple(given) if isinstance(given, list | tuple) else (given,)
    is_fine = [isinstance(n, int | np.integer) and not isinstance(n, bool) and n > 0 for n in shape]
    if not shape or not all(is_fine):
        raise ValueError(
            f"{name} must be a positive integer ({what}), or a shape of such, not {given!r}.{hint}"
        )
    return Size(tuple(map(int, shape)))


def functions_by_name(invariants: Any) -> dict[str, Any]:
    if not isinstance(invariants, Mapping | None):
        raise TypeError(
            'invariants must be a dictionary of functions, e.g. {"energy": H}, '
            f"not {type(invariants).__name__}."
        )
    return dict(invariants or {})
