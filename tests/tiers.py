"""Which cases of a test run in `make test`; the others are marked slow, beside the test."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest


def tiered(
    cases: Iterable[Any], fast: Collection[str], name: Callable[..., str] | None = None
) -> list[Any]:
    """Parameters for a test: the cases whose names are in `fast`, and the others marked slow.

    A tuple is a case of several parameters; its name joins theirs by hyphens.
    """
    one = name or str
    params, known = [], set()
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        label = "-".join(one(value) for value in values)
        known.add(label)
        params.append(pytest.param(*values, id=label, marks=_marks(label in fast)))
    if unknown := set(fast) - known:
        raise ValueError(f"no such cases: {sorted(unknown)}; there are {sorted(known)}")
    return params


def _marks(is_fast: bool) -> tuple[pytest.MarkDecorator, ...]:
    return () if is_fast else (pytest.mark.slow,)
