"""Functions that read the environment, files, the clock or random numbers, by names in their code.

What these give is not reached by references, so that such a function is traced again. A name that
means something else by accident costs the milliseconds of that.
"""

import dis
import os
import sys
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from dalembert.caches import bounded

__all__ = ["looks_outside"]

FROM_OUTSIDE = frozenset(
    (
        *("environ", "environb", "getenv", "getenvb", "getcwd", "getpid", "listdir", "argv"),
        *("open", "read_text", "read_bytes", "loadtxt", "genfromtxt", "fromfile", "memmap"),
        *("read_csv", "read_parquet", "input", "stdin", "urlopen", "urandom", "RandomState"),
    )
)
"""Names of what gives other things at other times, whatever they are attributes of."""

OUTSIDE = frozenset({"time", "datetime", "random", "secrets", "uuid", "subprocess", "socket"})
"""Modules of Python with nothing but that."""


class _Names(NamedTuple):
    """Names in code and in functions inside it.

    Attributes:
        read: those of globals.
        used: those and attributes, and what is imported from modules.
        imported: modules.
    """

    read: frozenset[str]
    used: frozenset[str]
    imported: frozenset[str]


def looks_outside(fun: FunctionType) -> bool:
    """Whether the code names what reads the environment, files, the clock or random numbers."""
    names = _names(fun.__code__)
    if names.used & FROM_OUTSIDE or names.imported & OUTSIDE:
        return True
    meant = [fun.__globals__[name] for name in names.read if name in fun.__globals__]
    meant += [cell.cell_contents for cell in fun.__closure__ or () if _is_bound(cell)]
    if "random" in names.used and any(x is sys.modules["numpy"] for x in meant):
        return True
    return any(map(_is_from_outside, meant))


def _is_from_outside(x: Any) -> bool:
    """Whether something is a module such as `time`, or a function of one, or the environment."""
    if isinstance(x, ModuleType):
        return x.__name__ in OUTSIDE
    if isinstance(x, FunctionType | BuiltinFunctionType | MethodType | type):
        module = getattr(x, "__module__", None) or type(getattr(x, "__self__", None)).__module__
        return module in OUTSIDE or (module in ("os", "io", "_io") and x.__name__ in FROM_OUTSIDE)
    return x is os.environ


def _is_bound(cell: Any) -> bool:
    """Whether a variable of a closure has a value yet."""
    try:
        return cell.cell_contents is cell.cell_contents
    except ValueError:
        return False


@bounded(4096)
def _names(code: CodeType) -> _Names:
    found: dict[str, set[str]] = {"LOAD_GLOBAL": set(), "LOAD_NAME": set(), "IMPORT_NAME": set()}
    for x in dis.get_instructions(code):
        if x.opname in found:
            found[x.opname].add(x.argval)
    here = found["LOAD_GLOBAL"] | found["LOAD_NAME"], set(code.co_names), found["IMPORT_NAME"]
    inner = [_names(part) for part in code.co_consts if isinstance(part, CodeType)]
    return _Names(*(frozenset(x).union(*rest) for x, *rest in zip(here, *inner, strict=True)))
