"""Say in words how a step is computed and why it may be computed that way."""

from collections.abc import Iterable
from textwrap import wrap
from typing import Any

import jax

from dalembert.dependence import Degree
from dalembert.driven import degree_in_time
from dalembert.methods.coefficients import counted
from dalembert.stepping.block_solver import BlockSolver
from dalembert.stepping.constrained import ConstrainedStepper
from dalembert.stepping.plan import Node
from dalembert.stepping.stepper import Stepper
from dalembert.system import ALL, Term

FEW = 4
"""Names of a kind that are listed; of more the first and the last."""

WIDTH = 100
"""Letters in a line."""

HELD = "\N{NO-BREAK SPACE}"
"""A space at which no line is broken."""


def folded(lines: Iterable[str]) -> str:
    """The lines, with those that are too long in several."""
    pieces: list[str] = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        pieces += wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    return "\n".join(pieces).replace(HELD, " ")


def describe(stepper: Stepper, written_for: str = "") -> str:
    """The findings about the system, the simplified stages and the order of work.

    `written_for` names an engine that writes out steps which are left as arrays for others.
    """
    system, plan = stepper.system, stepper.plan
    stages = stepper.method.rows_for(system.fields)
    before = len(stages.q_rows) + len(stages.p_rows) - 4
    used = {node for block in plan.blocks for node in (*block.unknowns, *block.explicit)}
    after = len(used - {plan.new_q, plan.new_p})
    size = f"dim {system.dim}, {counted(system.noises, 'noise')}"
    lines = [
        f"{stepper.method.name} on {system.name} ({size})",
        f"  terms: {_terms(stepper)}",
        f"  stage vectors: {before} in the tableau, {after} needed besides the new state",
    ]
    if isinstance(stepper, ConstrainedStepper):
        lines[2:] = _constraints(stepper)
    else:
        for number, solver in enumerate(stepper.solvers, 1):
            lines.append(f"  {number}. {_block(solver, stepper)}")
    if system.time:
        times = ", ".join(f"{part:.4g}" for part in _times(stepper))
        lines.insert(2, f"  driven: what depends on time is taken at {times} of a step")
    unknowns = [len(s.block.unknowns) * system.dim for s in stepper.solvers if s.block.unknowns]
    if isinstance(stepper, ConstrainedStepper):
        lines += _multipliers(stepper, unknowns)
    else:
        lines.append(f"  equations to solve: {' + '.join(map(str, unknowns)) or 'none, explicit'}")
    if system.flow is not None:
        kept = ", ".join(system.flow.keeps) or "nothing that it says"
        lines.append(f"  {system.flow.name} before and after, for half a step each: keeps {kept}")
    regime = _regime(stepper)
    if written_for:
        regime = f"scalars, written out for {written_for}; for other engines {regime}"
    lines.append(f"  regime: {regime}")
    return folded(lines)


def _times(stepper: Stepper) -> list[float]:
    """When terms that depend on time are taken, as parts of a step."""
    parts = [(stepper, 0.0)]
    if isinstance(stepper, ConstrainedStepper):
        parts = [(part.stepper, part.begins) for part in stepper.parts]
    z = jax.ShapeDtypeStruct((stepper.system.dim,), stepper.dtype)
    terms = {
        (entry.term[:2], begins + when)
        for part, begins in parts
        for row in part.plan.rows.values()
        for entry in row
        for when in entry.term[2:]
    }
    system = stepper.system.fields
    with jax.enable_x64(True):
        moving = {term for term, _ in terms if degree_in_time(system, term, z) > Degree.CONSTANT}
    return sorted({when for term, when in terms if term in moving})


def _constraints(stepper: ConstrainedStepper) -> list[str]:
    """The parts of a step, and how multipliers keep each of them on the constraints."""
    count, (size, blocks) = stepper.system.constraint_count, stepper.manifold.blocks.places.shape
    lines = [f"  {counted(count, 'constraint')}, in {counted(blocks, 'block')} of up to {size}"]
    for number, part in enumerate(stepper.parts, 1):
        steps = "; ".join(_block(solver, part.stepper) for solver in part.stepper.solvers)
        keeps = "positions are kept on g = 0, " if part.moves else ""
        often = f"{part.repeats} times " if part.repeats > 1 else ""
        lines.append(f"  {number}. {often}{steps}; {keeps}velocities tangent")
    return lines


def _multipliers(stepper: ConstrainedStepper, unknowns: list[int]) -> list[str]:
    """Equations of multipliers, all that a step of explicit parts has to solve."""
    count, lines = stepper.system.constraint_count, []
    moves = sum(part.repeats for part in stepper.parts if part.moves)
    projections = sum(part.repeats for part in stepper.parts)
    how = "linear" if stepper.manifold.is_straight else "nonlinear"
    lines.append(f"  multipliers to solve for: {moves} × {count} of positions (Newton)")
    lines[0] += f", {projections} × {count} of momenta ({how})"
    if unknowns:
        lines.append(f"  stage equations in each Newton step: {' + '.join(map(str, unknowns))}")
    return lines


def _terms(stepper: Stepper) -> str:
    words = {Degree.ZERO: "", Degree.CONSTANT: "", Degree.AFFINE: "linear", Degree.NONLINEAR: ""}
    # Noises of which the same is to be said are named together.
    alike: dict[tuple[str, str], list[int]] = {}
    for (kind, r, *time), dependence in stepper.dependence.items():
        if time and (kind, r) in stepper.dependence:
            continue
        arguments = [
            f"{variable}" + (f" ({words[d]})" if words[d] else "")
            for variable, d in (("q", dependence.on_q), ("p", dependence.on_p))
            if d > Degree.CONSTANT
        ]
        finding = f"({', '.join(arguments)})" if arguments else " constant"
        finding = " = 0" if dependence.vanishes else finding
        is_one_of_many = isinstance(r, int) and kind[0] not in "HF" and r != ALL
        name = kind if is_one_of_many else _term_name((kind, r))
        which = alike.setdefault((name, finding), [])
        if isinstance(r, int) and is_one_of_many:
            which.append(r + 1)
    found = (
        f"{name[0]}{_numbers(which)}{name[1:]}{finding}" if which else f"{name}{finding}"
        for (name, finding), which in alike.items()
    )
    return "; ".join(one.replace(" ", HELD) for one in found)


def _numbers(which: list[int]) -> str:
    """Numbers in words that are short however many they are: 1–60, or 1,3,5,…,59."""
    if len(which) > 1 and which[-1] - which[0] == len(which) - 1:
        return f"{which[0]}–{which[-1]}"
    few = which if len(which) <= FEW else [*which[: FEW - 1], "…", which[-1]]
    return ",".join(map(str, few))


def _term_name(term: Term) -> str:
    kind, r, *_ = term
    return f"{_bracket(r)}_{kind[-1]}" if isinstance(r, tuple) else kind


def _bracket(which: Any) -> str:
    """[V0,V1] and the like; 0 is the drift."""
    if isinstance(which, tuple):
        return f"[{','.join(map(_bracket, which))}]"
    return f"V{which}"


def _block(solver: BlockSolver, stepper: Stepper) -> str:
    explicit = _names(solver.block.explicit, stepper)
    if not solver.block.unknowns:
        return f"explicit: {explicit}"
    unknowns = _names(solver.block.unknowns, stepper)
    how = "linear" if solver.affine else "nonlinear"
    if solver.width:
        how += ", entry by entry" if solver.width == 1 else ", particle by particle"
    elif stepper.is_scalar:
        how += ", one Newton step" if solver.affine else ", Newton"
    then = f"; {explicit} by substitution" if explicit else ""
    return f"solve for {unknowns} ({how}){then}"


def _names(nodes: Iterable[Node], stepper: Stepper) -> str:
    names = [_name(node, stepper) for node in nodes]
    if len(names) > 3 * FEW:
        names = [*names[: FEW - 1], "…", names[-1], f"{len(names)} in all"]
    return ", ".join(names)


def _name(node: Node, stepper: Stepper) -> str:
    if node in (stepper.plan.new_q, stepper.plan.new_p):
        return f"{node.kind}_new"
    return f"{node.kind.upper()}{node.number}"


def _regime(stepper: Stepper) -> str:
    if stepper.is_scalar:
        return "scalars, written out"
    how = "explicit"
    if isinstance(stepper, ConstrainedStepper):
        how = f"multipliers by elimination in blocks of up to {stepper.manifold.blocks.size}"
    elif stepper.is_implicit:
        how = "sweeps, then Newton by products with vectors"
        if all(s.width for s in stepper.solvers if s.block.unknowns):
            how = "Newton, entry by entry or particle by particle"
    return f"arrays, {how} ({stepper.notice})"
