"""Programs on scalars for arrays of them: what is used often is put into memory in between.

XLA makes one loop over its entries of each result of a program, and computes again in every loop
what several results need. For a few numbers out of many operations that is most of the work.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from dalembert.stepping.expressions import Expression, Program

MOST_REPEATED = 16
"""Operations that are repeated for the users of a number, at most, instead of keeping it."""


class Stages:
    """A program that is mapped over arrays by `jax.vmap`; results are the same to rounding."""

    def __init__(self, program: Program) -> None:
        self.program, self.size = program, program.size
        users: dict[Any, int] = {}
        for node in program.order:
            for arg in {id(arg): arg for arg in node.args}.values():
                users[arg] = users.get(arg, 0) + 1
        costs: dict[Any, int] = {}
        stage: dict[Any, int] = {}
        self.stages: list[tuple[list[Expression], list[Expression]]] = []
        for node in program.order:
            at = max((stage.get(arg, 0) for arg in node.args), default=0)
            if at == len(self.stages):
                self.stages.append(([], []))
            self.stages[at][0].append(node)
            cost = 0 if node.is_shared else 1 + sum(costs.get(arg, 0) for arg in node.args)
            is_kept = cost * (users.get(node, 0) - 1) > MOST_REPEATED
            if is_kept:
                self.stages[at][1].append(node)
            stage[node], costs[node] = (at + 1, 0) if is_kept else (at, cost)

    def __call__(self, *args: Any) -> Any:
        """Results for arrays of traced scalars."""
        return self.program.in_stages(self.stages, _kept, *args)


def _kept(values: list[Any]) -> Sequence[Any]:
    return _through_memory(*values) if values else ()


@custom_vmap
def _through_memory(*values: Any) -> tuple[Any, ...]:
    return values


@_through_memory.def_vmap
def _mapped(size: int, is_batched: Any, *values: Any) -> tuple[tuple[Any, ...], Any]:
    """One array of all, which is not computed again where a part of it is read."""
    wide = [
        x if batched else jnp.broadcast_to(x, (size,))
        for x, batched in zip(values, is_batched, strict=True)
    ]
    rows = wide if len(wide) > 1 else [*wide, jnp.zeros_like(wide[0])]
    together = lax.optimization_barrier(jnp.stack(rows))
    return tuple(together[k] for k in range(len(wide))), tuple(True for _ in wide)
