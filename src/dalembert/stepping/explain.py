"""Say in words how a step is computed and why it may be computed that way."""

from typing import Any

from dalembert.dependence import Degree
from dalembert.stepping.block_solver import BlockSolver
from dalembert.stepping.plan import Node
from dalembert.stepping.stepper import Stepper
from dalembert.system import ALL, Term

__all__ = ["describe"]


def describe(stepper: Stepper) -> str:
    """The findings about the system, the simplified stages and the order of work."""
    system, plan = stepper.system, stepper.plan
    stages = stepper.method.rows_for(system)
    before = len(stages.q_rows) + len(stages.p_rows) - 4
    used = {node for block in plan.blocks for node in (*block.unknowns, *block.explicit)}
    after = len(used - {plan.new_q, plan.new_p})
    size = f"dim {system.dim}, {_count(system.noises, 'noise')}"
    lines = [
        f"{stepper.method.name} on {system.name} ({size})",
        f"  terms: {_terms(stepper)}",
        f"  stage vectors: {before} in the tableau, {after} needed besides the new state",
    ]
    if system.time:
        times = ", ".join(f"{part:.4g}" for part in plan.times)
        lines.append(f"  driven: terms are taken at {times} of a step")
    for number, solver in enumerate(stepper.solvers, 1):
        lines.append(f"  {number}. {_block(solver, stepper)}")
    unknowns = [len(s.block.unknowns) * system.dim for s in stepper.solvers if s.block.unknowns]
    lines.append(f"  equations to solve: {' + '.join(map(str, unknowns)) or 'none, explicit'}")
    lines.append(f"  regime: {_regime(stepper)}")
    return "\n".join(lines)


def _terms(stepper: Stepper) -> str:
    words = {Degree.ZERO: "", Degree.CONSTANT: "", Degree.AFFINE: "linear", Degree.NONLINEAR: ""}
    parts = []
    for term, dependence in stepper.dependence.items():
        if len(term) > 2 and term[:2] in stepper.dependence:
            continue
        name = _term_name(term)
        if dependence.vanishes:
            parts.append(f"{name} = 0")
            continue
        arguments = [
            f"{variable}" + (f" ({words[d]})" if words[d] else "")
            for variable, d in (("q", dependence.on_q), ("p", dependence.on_p))
            if d > Degree.CONSTANT
        ]
        parts.append(f"{name}({', '.join(arguments)})" if arguments else f"{name} constant")
    return "; ".join(parts)


def _term_name(term: Term) -> str:
    kind, r, *_ = term
    if isinstance(r, tuple):
        return f"{_bracket(r)}_{kind[-1]}"
    return kind if kind[0] in "HF" or r == ALL else f"{kind[0]}{r + 1}{kind[1:]}"


def _bracket(which: Any) -> str:
    """[V0,V1] and the like; 0 is the drift."""
    if isinstance(which, tuple):
        return f"[{','.join(map(_bracket, which))}]"
    return f"V{which}"


def _block(solver: BlockSolver, stepper: Stepper) -> str:
    explicit = ", ".join(_name(node, stepper) for node in solver.block.explicit)
    if not solver.block.unknowns:
        return f"explicit: {explicit}"
    unknowns = ", ".join(_name(node, stepper) for node in solver.block.unknowns)
    how = "linear" if solver.affine else "nonlinear"
    if solver.width:
        how += ", entry by entry" if solver.width == 1 else ", particle by particle"
    elif stepper.is_scalar:
        how += ", one Newton step" if solver.affine else ", Newton"
    then = f"; {explicit} by substitution" if explicit else ""
    return f"solve for {unknowns} ({how}){then}"


def _name(node: Node, stepper: Stepper) -> str:
    if node in (stepper.plan.new_q, stepper.plan.new_p):
        return f"{node.kind}_new"
    return f"{node.kind.upper()}{node.number}"


def _regime(stepper: Stepper) -> str:
    if stepper.is_scalar:
        return "scalars, written out"
    how = "explicit"
    if stepper.is_implicit:
        how = "sweeps, then Newton by products with vectors"
        if all(s.width for s in stepper.solvers if s.block.unknowns):
            how = "Newton, entry by entry or particle by particle"
    return f"arrays, {how} ({stepper.notice})"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
