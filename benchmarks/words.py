"""How pages say numbers: short ones, errors, ranges, tables, and the machine they come from."""

import math
from collections.abc import Iterable, Sequence
from typing import Any


def short(number: float) -> str:
    """A number of two or three digits, with a power of ten if it is large."""
    if number < 1e5:
        return f"{float(f'{number:.3g}'):,.10g}"
    digits, exponent = f"{number:.1e}".split("e")
    return f"{digits}·10{str(int(exponent)).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def with_error(number: float, error: float) -> str:
    """A number, and two digits of its error in units of its last digit."""
    digits = 1 - math.floor(math.log10(error))
    return f"{number:.{digits}f}({round(error * 10**digits)})".replace("-", "−")


def between(numbers: Iterable[float]) -> str:
    """The smallest and the largest of some ratios."""
    found = list(numbers)
    return f"{min(found):.2f}–{max(found):.2f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def machine(data: dict[str, Any], *packages: str) -> str:
    """Processor or GPU, versions and day."""
    found = data["machine"]
    where = found["gpu"] or f"{found['cpu']}, {cores(found['cores'])}"
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in ("jax", *packages))
    return f"{where}, {versions}, {found['date'][:10]}"


def cores(number: int) -> str:
    return "one core" if number == 1 else f"{number} cores"
