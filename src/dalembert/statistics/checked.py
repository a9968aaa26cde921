"""Whether a class of statistics is what a run expects: its methods and what they take."""

import inspect
from collections.abc import Mapping
from weakref import WeakSet

from dalembert.statistics.statistic import Statistic

FORMS = {
    "functions": (),
    "start": ("values",),
    "observe": ("memory", "values", "mask", "t"),
    "finish": ("memory", "mask"),
    "merge": ("a", "b"),
    "result": ("data", "t"),
}
"""The methods of a statistic that a run calls, and with what."""

NEEDED = ("functions", "merge", "result")

_right: WeakSet[type] = WeakSet()
"""Classes that have been looked at; signatures take long to read."""


def check_statistic(where: str, statistic: Statistic) -> None:
    """Refuse, by the name of its class, a statistic with methods of another form."""
    cls = type(statistic)
    for name, arguments in () if cls in _right else FORMS.items():
        form = f"def {name}({', '.join(('self', *arguments))})"
        if name in NEEDED and getattr(cls, name) is getattr(Statistic, name):
            raise TypeError(f"{where}: {cls.__name__} defines no {name}: write {form}.")
        try:
            inspect.signature(getattr(statistic, name)).bind(*arguments)
        except TypeError as error:
            raise TypeError(
                f"{where}: {cls.__name__}.{name} is called with {len(arguments)} arguments, "
                f"{form}: {error}."
            ) from error
    _right.add(cls)
    given = statistic.functions()
    if not isinstance(given, Mapping) or not given:
        raise TypeError(
            f"{where}: {cls.__name__}.functions must return functions of (q, p) by name, such as "
            f'{{"of": self.of}}, not {given!r}.'
        )
