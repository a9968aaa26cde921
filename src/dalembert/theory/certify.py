"""Certificates: what a tableau provably keeps and how fast it converges, from its numbers alone."""

from dataclasses import dataclass
from html import escape

from dalembert.methods.coefficients import Convergence, number_text
from dalembert.methods.tableau import (
    ClassicMethod,
    ExplicitTableau,
    ExplicitWeakTableau,
    MeanSquareTableau,
    Method,
    WeakTableau,
)
from dalembert.theory.certify_beyond import LAGRANGE_DALEMBERT, BeyondMethod, Orders, findings
from dalembert.theory.elementary_weights import expand
from dalembert.theory.order_conditions import TOLERANCE, WeakOrder, order_conditions, weak_order
from dalembert.theory.structure_conditions import (
    WEAK_CONDITION_4,
    mean_square_residuals,
    structure_residuals,
)
from dalembert.theory.text import table

#: Kinds of noise, from the easiest for a method to the hardest.
NOISE_KINDS = ("one", "additive", "commuting", "general")
#: Residuals up to this are rounding.
STRUCTURE_TOLERANCE = 1e-14

Section = tuple[str, list[tuple[str, ...]]]


@dataclass(frozen=True)
class Certificate:
    """What the coefficients of a method decide; ``str()`` is a table.

    Attributes:
        method: the tableau.
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
        structure: what the residuals are about.
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
        """Whether every condition that applies holds to rounding (1e-14)."""
        counted = (v for label, v in self.residuals.items() if label not in self.not_counted)
        return all(value <= STRUCTURE_TOLERANCE for value in counted)

    @property
    def lagrange_dalembert(self) -> bool:
        """Whether the method is a Lagrange–d'Alembert integrator."""
        return self.keeps_structure and self.structure == LAGRANGE_DALEMBERT

    @property
    def convergence(self) -> Convergence:
        """The sense of ``order``: "mean-square" or "weak"."""
        return self.method.convergence

    def __str__(self) -> str:
        lines = [self._title(), ""]
        for title, rows in self._sections():
            lines += [title, *table(rows), ""]
        return "\n".join([*lines, *(f"- {note}" for note in self.notes)]).rstrip()

    def _repr_html_(self) -> str:
        parts = [f"<b>{escape(self._title())}</b>"]
        for title, rows in self._sections():
            body = "".join(
                "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
                for row in rows
            )
            parts.append(f"<p>{escape(title)}</p><table>{body}</table>")
        parts.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in self.notes) + "</ul>")
        return "".join(parts)

    def _title(self) -> str:
        s = self.method.stages
        stages = "1 stage" if s == 1 else f"{s} stages"
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
        structure, sums = self.residuals, self.convergence_residuals
        return [
            (f"{self.structure}: {kept}", rows(structure, STRUCTURE_TOLERANCE)),
            *([(f"Convergence ({self.convergence})", rows(sums, TOLERANCE))] if sums else []),
            ("Order by kind of noise", orders),
        ]


def certify(method: Method) -> Certificate:
    """Decide from the coefficients of ``method`` what it keeps and its orders of convergence.

    Works for the named methods and for tableaus of your own alike.
    """
    if isinstance(method, BeyondMethod):
        return _certify_beyond(method)
    if not isinstance(method, ClassicMethod):
        raise TypeError(
            f"certify needs a tableau, got {method!r}; write for example certify(midpoint()) "
            "or certify(MeanSquareTableau(...))"
        )
    residuals = structure_residuals(method)
    not_counted = frozenset({WEAK_CONDITION_4} if _is_for_one_noise(method) else ())
    weak, weak_notes = _weak_orders(method)
    if isinstance(method, (MeanSquareTableau, ExplicitTableau)):
        sums = mean_square_residuals(method)
        order, notes = _mean_square_orders(sums)
    else:
        sums = _weak_sums(method)
        order, notes = dict(weak), ()
    return Certificate(
        method=method,
        residuals=residuals,
        not_counted=not_counted,
        convergence_residuals=sums,
        order=_taken(method, order),
        weak_order=_taken(method, weak),
        notes=(*_structure_notes(method, not_counted), *notes, *weak_notes),
    )


def _certify_beyond(method: BeyondMethod) -> Certificate:
    found = findings(method)
    return Certificate(
        method=method,
        residuals=found.residuals,
        not_counted=frozenset(),
        convergence_residuals=found.sums,
        order=_taken(method, found.order),
        weak_order=_taken(method, found.weak_order),
        notes=found.notes,
        structure=found.structure,
    )


def takes(method: Method, kind: str) -> bool:
    """Whether a method takes every system with this kind of noise, as far as noise decides."""
    try:
        method.check_noises(1 if kind == "one" else 2)
    except ValueError:
        return False
    return kind == "additive" or not method.requires


def _taken(method: Method, orders: Orders) -> Orders:
    """The orders for the kinds of noise that a method takes: for others it has none."""
    return {kind: orders[kind] if takes(method, kind) else None for kind in NOISE_KINDS}


def _is_for_one_noise(method: Method) -> bool:
    return isinstance(method, WeakTableau) and method.max_noises == 1


def _structure_notes(method: ClassicMethod, not_counted: frozenset[str]) -> tuple[str, ...]:
    if not_counted:
        return (f"condition 4 couples different noises; {method.name} takes one noise only",)
    if isinstance(method, (ExplicitTableau, ExplicitWeakTableau)):
        return ("no explicit method meets condition 1: 0 = α_i² for every i, but Σ α_i = 1",)
    return ()


def _mean_square_orders(sums: dict[str, float]) -> tuple[Orders, tuple[str, ...]]:
    """The convergence theorem; 1.0 is the most that it promises, also to methods that read ΔZ."""
    failing = [label for label, value in sums.items() if value > TOLERANCE]
    if not failing:
        return {"one": 1.0, "additive": 1.0, "commuting": 1.0, "general": 0.5}, ()
    note = (
        "does not converge to the Stratonovich solution unless the noise is additive: "
        + "; ".join(failing)
        + (" fails" if len(failing) == 1 else " fail")
    )
    return {"one": None, "additive": 1.0, "commuting": None, "general": None}, (note,)


def _weak_sums(method: WeakTableau | ExplicitWeakTableau) -> dict[str, float]:
    """The conditions for weak order one, with two noises where the method takes them."""
    noises = 1 if _is_for_one_noise(method) else 2
    conditions = list(order_conditions(expand(method, noises), "general", 1))
    sums = {f"E[{c.forest}] = {number_text(c.exact)}": c.residual for c in conditions if c.exact}
    others = [c.residual for c in conditions if not c.exact]
    if others:
        sums[f"E = 0 for {len(others)} other products of trees"] = max(others)
    return sums


def _weak_orders(method: ClassicMethod) -> tuple[Orders, tuple[str, ...]]:
    found = {"one": weak_order(method, "one"), "additive": weak_order(method, "additive")}
    notes: list[str] = []
    if not _is_for_one_noise(method):
        found["general"] = general = weak_order(method, "general")
        if general.order < found["one"].order:
            notes.append(
                f"weak order for commuting noises: at least {general.order}, as for general ones, "
                f"and at most {found['one'].order}, as for one; the coefficients alone do not "
                "decide"
            )
    orders: Orders = {kind: float(result.order) or None for kind, result in found.items()}
    # Commuting noises lie between one noise and general ones.
    orders["commuting"] = orders.setdefault("general", None)
    notes += [_obstacle(kind, result) for kind, result in found.items() if result.violations]
    return {kind: orders[kind] for kind in NOISE_KINDS}, tuple(notes)


def _obstacle(kind: str, result: WeakOrder) -> str:
    count = len(result.violations)
    conditions = "1 condition" if count == 1 else f"{count} conditions"
    simplest = min(result.violations, key=lambda c: (c.weight, len(c.forest)))
    return (
        f"weak order {result.order + 1} for noise of kind '{kind}' is stopped by {conditions}, "
        f"among them {simplest}"
    )
