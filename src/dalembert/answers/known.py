"""What runs that are made ready are known by, and what is collected of paths and of pairs."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.caches import bounded
from dalembert.captured import captured
from dalembert.digest import traced_key
from dalembert.ensemble.identity import run_arguments
from dalembert.ensemble.settings import Settings
from dalembert.statistics import Mean

__all__ = ["known_by", "observing", "types_of"]


def types_of(params: Any) -> Hashable:
    """Shapes and types of parameters, and the tree that they form."""
    leaves, tree = jax.tree.flatten(params)
    return tuple((np.shape(x), np.result_type(x)) for x in leaves), tree


def known_by(settings: Settings) -> Hashable:
    """What a run that is made ready depends on besides numbers, with what its functions read."""
    functions = [fun for *_, fun in settings.functions]
    # As runs trace them: rounded numbers would be the same where they are not.
    with jax.enable_x64(settings.dtype == np.float64):
        like = run_arguments(settings.system, settings.dtype)
        reads = [captured(fun, partial(traced_key, fun, *like)) for fun in functions]
    types = types_of(settings.system.params)
    parts = settings.method, settings.statistics, settings.at_end, settings.backend
    return settings.system.key, *reads, types, *parts


def observing(one: Mean, is_pair: bool) -> Mean:
    """What is collected of paths, or of pairs: the difference, and the value of the fine path."""
    return replace(one, of=_both(one.of)) if is_pair else one


# Compiled code is found again by the identity of functions: equal arguments give the same ones.
@bounded(64)
def _both(fun: Callable[..., Any]) -> Callable[..., Any]:
    def of_pair(q: Any, p: Any, *rest: Any) -> Any:
        fine, coarse = (jnp.asarray(fun(q[i], p[i], *rest)) for i in range(2))
        return jnp.stack([fine - coarse, fine])

    return of_pair
