"""Plain text for people: tables whose columns line up."""

from collections.abc import Iterable, Mapping, Sequence

from dalembert.methods.coefficients import text_width


def table(rows: Sequence[Sequence[str]], indent: str = "  ", right: bool = False) -> list[str]:
    """The rows as lines, every column as wide as its widest cell, combining characters aside."""
    widths = [max(map(text_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for cell, width in zip(row, widths, strict=True):
            space = " " * (width - text_width(cell))
            cells.append(space + cell if right else cell + space)
        lines.append(indent + "  ".join(cells).rstrip())
    return lines


def convergence_table(
    dts: Iterable[float], errors: Mapping[str, Iterable[float]], label: str, orders: Sequence[str]
) -> list[str]:
    """Errors by name at every step size, and what they say about the order in the last row."""
    rows = [("dt", *errors)]
    for dt, *row in zip(dts, *errors.values(), strict=True):
        rows.append((f"{dt:.3g}", *(f"{error:.1e}" for error in row)))
    return table([*rows, (label, *orders)], right=True)


def listed(words: Sequence[str]) -> str:
    """Several things in a row: "a, b and c"."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
