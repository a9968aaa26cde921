"""Certificates: what a method provably keeps and how fast it converges, from its numbers alone."""

from dataclasses import dataclass, replace
from html import escape

from dalembert.methods import Method, method_of
from dalembert.methods.checked_rows import checked_rows
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
from dalembert.stepping.step import check_family
from dalembert.system import System
from dalembert.theory.elementary_weights import expand, is_series
from dalembert.theory.order_conditions import AlgebraicOrder, algebraic_order, order_conditions
from dalembert.theory.text import table
from dalembert.theory.tree_words import term_in_words

#: Residuals up to this are rounding.
STRUCTURE_TOLERANCE = 1e-14

Section = tuple[str, list[tuple[str, ...]], str]

SAID = {
    LAGRANGE_DALEMBERT: "the discrete Lagrange–d'Alembert principle holds if these residuals of "
    "the coefficients vanish",
    "mean-square": "sums of the coefficients that the theorem on convergence asks for; e is all 1",
    "weak": "means of the method's series in trees: 0 is the drift, 1 and 2 are noises; 1 · 1 is a "
    "product, and 1[1] is noise 1 moved by itself",
    "order": "mean-square: of paths; weak: of expectations. Of one noise, additive (constant) "
    "ones, commuting, any",
}
"""What the parts of a certificate are about, for those who do not know the theory."""

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
            it is not known. "one" is a single noise of any kind, "additive", "commuting" and
            "general" are any number of them.
        weak_order: the same for weak convergence, up to two.
        notes: what the numbers do not say.
        structure: what the residuals are about; "" if no structure is declared.
        is_checked: whether the structure has conditions; otherwise it is declared alone.
        not_known: the orders that are None because they are not known, such as ("weak", "one").
    """

    method: Method
    residuals: dict[str, float]
    not_counted: frozenset[str]
    convergence_residuals: dict[str, float]
    order: Orders
    weak_order: Orders
    notes: tuple[str, ...]
    structure: str = LAGRANGE_DALEMBERT
    is_checked: bool = True
    not_known: frozenset[tuple[str, str]] = frozenset()

    @property
    def keeps_structure(self) -> bool:
        """Whether there is a structure whose conditions, as far as they apply, hold to rounding."""
        counted = (v for label, v in self.residuals.items() if label not in self.not_counted)
        has_one = bool(self.structure) and self.is_checked
        return has_one and all(value <= STRUCTURE_TOLERANCE for value in counted)

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

        def row(sense: str, orders: Orders) -> tuple[str, ...]:
            none = ("?" if (sense, kind) in self.not_known else "-" for kind in NOISE_KINDS)
            values = zip(map(orders.get, NOISE_KINDS), none, strict=True)
            return (sense, *(text if x is None else number_text(x) for x, text in values))

        orders: list[tuple[str, ...]] = [("", *NOISE_KINDS)]
        if self.convergence == "mean-square":
            orders.append(row("mean-square", self.order))
        orders.append(row("weak", self.weak_order))
        unknown = "; ? is not known" if self.not_known else ""
        found, sums = rows(self.residuals, STRUCTURE_TOLERANCE), self.convergence_residuals
        theorem = (f"Convergence ({self.convergence})", rows(sums, TOLERANCE))
        return [
            (f"{self.structure or 'Structure'}: {self._kept()}", found, self._said()),
            *([(*theorem, SAID[self.convergence])] if sums else []),
            ("Order by kind of noise", orders, SAID["order"] + unknown),
        ]

    def _said(self) -> str:
        return SAID.get(self.structure, "") if self.residuals else ""

    def _kept(self) -> str:
        """Whether the structure is kept, in words."""
        if not self.structure:
            is_silent = type(self.method).promises is Method.promises
            return "not declared (write `promises`)" if is_silent else "none declared"
        if not self.is_checked:
            return "declared, not checked"
        return "kept" if self.keeps_structure else "NOT kept"


def certify(method: Method | str, system: System | None = None) -> Certificate:
    """Decide from the coefficients of ``method`` what it keeps and its orders of convergence.

    Works for the named methods, also by their names, and for your own alike. Orders that
    a method promises are compared with the series of its rows. Of a system with a flow, such as
    collisions, the certificate is that of the composition of both; one with constraints is refused
    by methods that do not keep them.
    """
    method = method_of(method)
    if not isinstance(method, Method):
        raise TypeError(
            f"certify needs a method, got {method!r}; write for example certify(midpoint()) "
            "or certify(MeanSquareTableau(...))"
        )
    check_family(method)
    for noises in (1, 2):
        if method.takes(noises):
            checked_rows(method, noises)
    promised = method.promises()
    found = _series_orders(method)
    weak, notes = promised.weak_order, ()
    if weak is None:
        weak, notes = _weak_orders(found)
        if method.parts:
            # The series is that without constraints: beyond order one it says nothing about them.
            weak = {kind: order and min(order, 1.0) for kind, order in weak.items()}
    sums = promised.sums
    if sums is None:
        sums = _weak_sums(method)
    claimed = {"weak": weak, "mean-square": promised.order or {}}
    if method.convergence == "weak":
        claimed["mean-square"] = weak
    contradictions = refuted(claimed, found)
    for sense, kind in contradictions:
        claimed[sense] = {**claimed[sense], kind: None}
    order = claimed[method.convergence]
    certificate = Certificate(
        method=method,
        residuals=promised.residuals or {},
        not_counted=promised.not_counted,
        convergence_residuals=sums,
        order=_taken(method, order),
        weak_order=_taken(method, claimed["weak"]),
        notes=(*promised.notes, *contradictions.values(), *notes),
        structure=promised.structure,
        is_checked=promised.residuals is not None,
        not_known=_not_known(method, claimed, found),
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
        not_known=frozenset((x, kind) for x in ("weak", "mean-square") for kind in NOISE_KINDS),
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


def _series_orders(method: Method) -> dict[str, AlgebraicOrder]:
    """The weak orders that the series of the rows shows, by kind of noise, where there is one."""
    found: dict[str, AlgebraicOrder] = {}
    for kind in ("one", "additive", "general"):
        noises = 1 if kind == "one" else 2
        if takes(method, kind) and is_series(method, noises, additive=kind == "additive"):
            found[kind] = algebraic_order(method, kind)
    return found


def _weak_orders(found: dict[str, AlgebraicOrder]) -> tuple[Orders, tuple[str, ...]]:
    """Weak orders by kind of noise, and what stops the next ones."""
    orders: Orders = {kind: float(result.order) or None for kind, result in found.items()}
    # Commuting noises lie between one noise and general ones.
    orders["commuting"] = orders.get("general")
    stopped = [_obstacle(kind, result) for kind, result in found.items() if result.violations]
    notes = [note for note, _ in stopped]
    if stopped:
        notes.append(term_in_words(*(forest for _, forest in stopped)))
    if "general" in found and found["general"].order < found["one"].order:
        notes.insert(
            0,
            f"weak order for commuting noises: at least {found['general'].order}, as for general "
            f"ones, and at most {found['one'].order}, as for one; the coefficients alone do not "
            "decide",
        )
    return orders, tuple(notes)


def refuted(
    claimed: dict[str, Orders], found: dict[str, AlgebraicOrder]
) -> dict[tuple[str, str], str]:
    """Promised orders, by sense and kind of noise, that the series shows to be wrong, and why.

    A mean-square order is a weak order, too: expectations are no worse than paths.
    """
    wrong = {}
    for sense, orders in claimed.items():
        for kind, order in orders.items():
            # Commuting noises are any number of them, and so also one.
            result = found.get("one" if kind == "commuting" else kind)
            if result is None or not order or not result.violations:
                continue
            is_half = all(c.weight > result.order + 1 for c in result.violations)
            if order > result.order + is_half / 2:
                noise = KINDS_IN_WORDS[kind]
                wrong[sense, kind] = (
                    f"the promised {sense} order {number_text(order)} for {noise} is contradicted "
                    f"by the rows, whose weak order is {number_text(result.order + is_half / 2)}"
                )
    return wrong


def _not_known(
    method: Method, claimed: dict[str, Orders], found: dict[str, AlgebraicOrder]
) -> frozenset[tuple[str, str]]:
    """The orders of which neither the promises nor the series of the rows say anything."""
    promised = method.promises()
    said = {"weak": promised.weak_order or {}, "mean-square": promised.order or {}}
    if method.convergence == "weak":
        said["mean-square"] = said["weak"]
    none = {kind for kind, result in found.items() if result.order == 0}
    # What fails for one noise fails for commuting ones, and so does order for one of many.
    none |= {"commuting", "general"} if "one" in none else set()
    known = {"weak": none | (found.keys() if promised.weak_order is None else set())}
    known["mean-square"] = none
    return frozenset(
        (sense, kind)
        for sense, orders in claimed.items()
        for kind in NOISE_KINDS
        if takes(method, kind) and orders.get(kind) is None
        if kind not in said[sense] and kind not in known[sense]
    )


KINDS_IN_WORDS = {
    "one": "one noise",
    "additive": "additive noise",
    "commuting": "commuting noises",
    "general": "several noises",
}


def _obstacle(kind: str, result: AlgebraicOrder) -> tuple[str, str]:
    """What stops the next order, in words, and its simplest term."""
    conditions = counted(len(result.violations), "condition")
    simplest = min(result.violations, key=lambda c: (c.weight, len(c.forest)))
    note = (
        f"weak order {result.order + 1} for {KINDS_IN_WORDS[kind]} is stopped by {conditions}, "
        f"such as E[{simplest.forest}], which is {number_text(simplest.method)} and should be "
        f"{number_text(simplest.exact)}"
    )
    return note, simplest.forest
