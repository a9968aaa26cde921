"""Certificates: what a method provably keeps and how fast it converges, from its numbers alone."""

from dataclasses import dataclass, replace
from html import escape

from dalembert.methods import Method
from dalembert.methods.coefficients import counted, number_text
from dalembert.methods.conditions import TOLERANCE, Residuals
from dalembert.methods.method import (
    LAGRANGE_DALEMBERT,
    NOISE_KINDS,
    QUASI_SYMPLECTIC,
    SYMPLECTIC,
    Convergence,
    Orders,
)
from dalembert.stepping.requirements import (
    REQUIREMENTS,
    check_requirements,
    refuse_without_constraints,
)
from dalembert.system import System
from dalembert.theory.elementary_weights import expand, is_series
from dalembert.theory.order_conditions import AlgebraicOrder, algebraic_order, order_conditions
from dalembert.theory.text import table

#: Residuals up to this are rounding.
STRUCTURE_TOLERANCE = 1e-14

Section = tuple[str, list[tuple[str, ...]], str]

SAID = {
    LAGRANGE_DALEMBERT: "the discrete Lagrange–d'Alembert principle holds if these residuals of "
    "the coefficients vanish",
    "mean-square": "sums of the coefficients that the theorem on convergence asks for; e is all 1",
    "weak": "means of the method's series in trees: 0 is the drift, 1 and 2 are noises; 1[0] is "
    "noise 1 moved by the drift",
    "order": "mean-square: of paths; weak: of expectations. Of one noise, additive (constant) "
    "ones, commuting, any",
}
"""What the parts of a certificate are about, for those who do not know the theory."""

NOTATION = (
    "E[1[0 1]] is the mean of one term of the step's series: 0 is the drift, 1 a noise, and "
    "brackets hold what moves its argument; here noise 1, moved by the drift and by itself"
)

IN_A_WORD = {
    LAGRANGE_DALEMBERT: "structure",
    QUASI_SYMPLECTIC: "quasi-symplectic",
    SYMPLECTIC: "symplectic",
}


@dataclass(frozen=True)
class Certificate:
    """What the coefficients of a method decide; ``str()`` is a table.

    Attributes:
        method: the method.
        residuals: largest residual of each condition of the structure, by its formula.
        not_counted: conditions that are shown but do not apply.
        convergence_residuals: the sums of the mean-square convergence theorem, or the conditions
            for weak order one.
        order: order of convergence by kind of noise, in the sense of ``convergence``; None where
            the method does not converge to the Stratonovich solution, refuses such noise, or where
            the coefficients do not decide. "one" is a single noise of any kind, "additive",
            "commuting" and "general" are any number of them.
        weak_order: the same for weak convergence, up to two.
        notes: what the numbers do not say.
        structure: what the residuals are about; "" if no structure is known to be kept.
    """

    method: Method
    residuals: dict[str, float]
    not_counted: frozenset[str]
    convergence_residuals: dict[str, float]
    order: Orders
    weak_order: Orders
    notes: tuple[str, ...]
    structure: str = LAGRANGE_DALEMBERT

    @property
    def keeps_structure(self) -> bool:
        """Whether there is a structure whose conditions, as far as they apply, hold to rounding."""
        counted = (v for label, v in self.residuals.items() if label not in self.not_counted)
        return bool(self.structure) and all(value <= STRUCTURE_TOLERANCE for value in counted)

    @property
    def lagrange_dalembert(self) -> bool:
        """Whether the method is a Lagrange–d'Alembert integrator."""
        return self.keeps_structure and self.structure == LAGRANGE_DALEMBERT

    @property
    def keeps(self) -> str:
        """What it keeps in a word: "structure", "quasi-symplectic", "symplectic" or "-"."""
        return IN_A_WORD.get(self.structure, "-") if self.keeps_structure else "-"

    @property
    def takes(self) -> str:
        """What the method is made for, in words."""
        wanted = [REQUIREMENTS[requirement] for requirement in sorted(self.method.requires)]
        return " and ".join(wanted) or ("any noises" if self.method.takes(2) else "one noise")

    @property
    def convergence(self) -> Convergence:
        """The sense of ``order``: "mean-square" or "weak"."""
        return self.method.convergence

    def __str__(self) -> str:
        lines = [self._title(), ""]
        for title, rows, said in self._sections():
            lines += [title, *([f"  ({said})"] if said else []), *table(rows), ""]
        return "\n".join([*lines, *(f"- {note}" for note in self.notes)]).rstrip()

    def _repr_html_(self) -> str:
        parts = [f"<b>{escape(self._title())}</b>"]
        for title, rows, said in self._sections():
            body = "".join(
                "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
                for row in rows
            )
            small = f"<br><small>{escape(said)}</small>" if said else ""
            parts.append(f"<p>{escape(title)}{small}</p><table>{body}</table>")
        parts.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in self.notes) + "</ul>")
        return "".join(parts)

    def _title(self) -> str:
        stages = counted(self.method.stages, "stage")
        return f"Certificate of {self.method.name} ({self.method.family}, {stages})"

    def _sections(self) -> list[Section]:
        def rows(residuals: dict[str, float], tolerance: float) -> list[tuple[str, ...]]:
            found = []
            for label, value in residuals.items():
                verdict = "ok" if value <= tolerance else "FAILS"
                verdict = "does not apply" if label in self.not_counted else verdict
                found.append((label, f"{value:.1e}", verdict))
            return found

        def texts(orders: Orders) -> list[str]:
            values = (orders[kind] for kind in NOISE_KINDS)
            return ["-" if value is None else number_text(value) for value in values]

        kept = "kept" if self.keeps_structure else "NOT kept"
        orders: list[tuple[str, ...]] = [("", *NOISE_KINDS)]
        if self.convergence == "mean-square":
            orders.append(("mean-square", *texts(self.order)))
        orders.append(("weak", *texts(self.weak_order)))
        found, sums = rows(self.residuals, STRUCTURE_TOLERANCE), self.convergence_residuals
        theorem = (f"Convergence ({self.convergence})", rows(sums, TOLERANCE))
        return [
            (f"{self.structure or 'Structure'}: {kept}", found, SAID.get(self.structure, "")),
            *([(*theorem, SAID[self.convergence])] if sums else []),
            ("Order by kind of noise", orders, SAID["order"]),
        ]


def certify(method: Method, system: System | None = None) -> Certificate:
    """Decide from the coefficients of ``method`` what it keeps and its orders of convergence.

    Works for the named methods and for your own alike. Of a system with a flow, such as
    collisions, the certificate is that of the composition of both; one with constraints is refused
    by methods that do not keep them.
    """
    if not isinstance(method, Method):
        raise TypeError(
            f"certify needs a method, got {method!r}; write for example certify(midpoint()) "
            "or certify(MeanSquareTableau(...))"
        )
    promised = method.promises()
    weak, notes = promised.weak_order, ()
    if weak is None:
        weak, notes = _weak_orders(method)
        if method.parts:
            # The series is that without constraints: beyond order one it says nothing about them.
            weak = {kind: order and min(order, 1.0) for kind, order in weak.items()}
    sums = promised.sums
    if sums is None:
        sums = _weak_sums(method)
    order = weak if method.convergence == "weak" else promised.order or {}
    certificate = Certificate(
        method=method,
        residuals=promised.residuals or {},
        not_counted=promised.not_counted,
        convergence_residuals=sums,
        order=_taken(method, order),
        weak_order=_taken(method, weak),
        notes=(*promised.notes, *notes),
        structure=promised.structure,
    )
    return certificate if system is None else _composed(certificate, system)


def _composed(certificate: Certificate, system: System) -> Certificate:
    """The certificate of a method's symmetric composition with the flow of a system."""
    if not isinstance(system, System):
        raise TypeError(f"system must be a da.System, not {system!r}.")
    method, count, flow = certificate.method, system.constraint_count, system.flow
    refuse_without_constraints(system, method)
    if "constraints" in method.requires:
        check_requirements(system, method)
        left = f"a manifold of dimension {system.dim - count} if none of them follows from others"
        note = f"{system.name} has {count} constraints: all of this is on {left}; see da.diagnose"
        certificate = replace(certificate, notes=(*certificate.notes, note))
    if flow is None:
        return certificate
    kept = ", ".join(flow.keeps) or "nothing that they say"
    unknown: Orders = dict.fromkeys(certificate.order)
    notes = (
        f"{flow.name} before and after every step, for half of it each, keep to rounding: {kept}",
        "what the method and the flow both keep is kept by their composition",
        "the composition is symmetric: it has weak order 2 where the flow, and the method without "
        "noise, have it; coefficients do not decide that",
    )
    return replace(
        certificate,
        structure=certificate.structure and f"{certificate.structure}, of the Hamiltonian part",
        order=unknown,
        weak_order=unknown,
        convergence_residuals={},
        notes=notes,
    )


def takes(method: Method, kind: str) -> bool:
    """Whether a method takes every system with this kind of noise, as far as noise decides."""
    of_noise = method.requires - {"constraints"}
    return method.takes(1 if kind == "one" else 2) and (kind == "additive" or not of_noise)


def _taken(method: Method, orders: Orders) -> Orders:
    """The orders for the kinds of noise that a method takes: for others it has none."""
    return {kind: orders.get(kind) if takes(method, kind) else None for kind in NOISE_KINDS}


def _weak_sums(method: Method) -> Residuals:
    """The conditions for weak order one, with two noises where the method takes them."""
    noises = 2 if method.takes(2) else 1
    if method.convergence != "weak" or not is_series(method, noises):
        return {}
    conditions = list(order_conditions(expand(method, noises), "general", 1))
    sums = {f"E[{c.forest}] = {number_text(c.exact)}": c.residual for c in conditions if c.exact}
    others = [c.residual for c in conditions if not c.exact]
    if others:
        sums[f"E = 0 for {len(others)} other products of trees"] = max(others)
    return sums


def _weak_orders(method: Method) -> tuple[Orders, tuple[str, ...]]:
    """Those that the series of the rows shows, by kind of noise, and what stops the next ones."""
    found: dict[str, AlgebraicOrder] = {}
    for kind in ("one", "additive", "general"):
        noises = 1 if kind == "one" else 2
        if takes(method, kind) and is_series(method, noises, additive=kind == "additive"):
            found[kind] = algebraic_order(method, kind)
    orders: Orders = {kind: float(result.order) or None for kind, result in found.items()}
    # Commuting noises lie between one noise and general ones.
    orders["commuting"] = orders.get("general")
    notes = [_obstacle(kind, result) for kind, result in found.items() if result.violations]
    if notes:
        notes.append(NOTATION)
    if "general" in found and found["general"].order < found["one"].order:
        notes.insert(
            0,
            f"weak order for commuting noises: at least {found['general'].order}, as for general "
            f"ones, and at most {found['one'].order}, as for one; the coefficients alone do not "
            "decide",
        )
    return orders, tuple(notes)


def _obstacle(kind: str, result: AlgebraicOrder) -> str:
    conditions = counted(len(result.violations), "condition")
    noise = {"one": "one noise", "additive": "additive noise"}.get(kind, "several noises")
    simplest = min(result.violations, key=lambda c: (c.weight, len(c.forest)))
    return (
        f"weak order {result.order + 1} for {noise} is stopped by {conditions}, such as "
        f"E[{simplest.forest}], which is {number_text(simplest.method)} and should be "
        f"{number_text(simplest.exact)}"
    )
