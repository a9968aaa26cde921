"""A diagnosis as a page to read."""

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from dalembert.methods import METHODS, Method
from dalembert.methods.coefficients import counted, number_text
from dalembert.theory.moment_map import MAX_DIM
from dalembert.theory.sampled import MOST_TERMS
from dalembert.theory.text import table

if TYPE_CHECKING:
    from dalembert.theory.diagnosis import Diagnosis

WIDTH = 100
_TRACED = "from the functions"
_EVIDENCE = {
    "traced": _TRACED,
    "counterexample": "not of this form",
    "sampled": "at every sampled state",
    "undecided": "not decided by random directions, taken as no",
}
KIND_IN_WORDS = {
    "none": "no noise",
    "one": "one multiplicative noise",
    "additive": "additive noise",
    "commuting": "commuting noises",
    "general": "noises that do not commute",
}

KEPT = {"structure": "kept", "symplectic": "without forces", "-": "no"}


def page(d: "Diagnosis") -> list[str]:
    """The lines of the page, at most 60 for the named methods."""
    size = f"dim {d.system.dim}, {counted(d.system.noises, 'noise')}"
    tried = f"tried at {counted(d.states, 'state')}"
    tried += f", {d.skipped} more left out as not finite" if d.skipped else ""
    tried += f", tested in {d.directions} random directions" if d.directions else ""
    tried += " and random sums of noises" if _sums(d) else ""
    tried += ", with time as the last position" if d.system.time else ""
    lines = [f"Diagnosis of {d.system.name} ({size}): {_kind(d)}", f"  {tried}", ""]
    lines += ["Structure", *table(_structure(d)), ""]
    lines += ["Invariants", *table(_invariants(d)), ""]
    lines += _flow(d)
    lines += ["Methods on this system", *table(_methods(d))]
    for v in d.methods:
        lines += _item(v.refused.partition(". ")[0], "  ") if v.refused else []
    lines += ["", "Recommendation"] if d.recommendation else []
    for advice in d.recommendation:
        lines.append(f"  {advice.purpose}: {advice.method}")
        for reason in advice.reasons:
            lines += _item(reason, "    ")
    notes = [line for note in _notes(d) for line in _item(note, "  ")]
    return [*lines, "", "Notes", *notes] if notes else lines


def _structure(d: "Diagnosis") -> list[tuple[str, ...]]:
    def row(label: str, holds: bool, fact: str, more: str = "") -> tuple[str, ...]:
        place = d.where.get(fact)
        text = f"fails at {place}" if place else _evidence(d, fact)
        return (label, "yes" if holds else "no", f"{text}; {more}" if more else text)

    rates = "" if d.rates is None else _rates([f"{rate:.6g}" for rate in d.rates])
    blame = _some(d.nonlinear_terms)
    rows = [
        row("separable Hamiltonians", d.separable, "separable"),
        row("forces linear in p", d.forcing_linear_in_p, "forcing_linear_in_p"),
        row("constant friction Γ", d.constant_friction, "friction", _matrices(d)),
        row("forces −ν p (conformal)", d.conformal, "conformal", rates),
        ("linear dynamics", *(("yes", _TRACED) if d.linear else ("no", f"not affine: {blame}"))),
        *_constraints(d),
    ]
    if d.noise_kind == "none":
        return rows
    looks_constant = "constant at every sampled state, not as written"
    untraced = not d.additive and d.evidence["additive"] == "sampled"
    rows.append(
        ("additive noise", "no", looks_constant)
        if untraced
        else row("additive noise", d.additive, "additive")
    )
    if d.additive:
        rows.append(row("drift affine along each", d.straight_drift, "straight_drift"))
        rows.append(row("  and along their sums", d.straight_together, "straight_together"))
    if d.system.noises > 1:
        rows.append(row("commuting noises", d.commutative, "commutative"))
    for letter, gap in (("Γ", d.gamma_gap), ("Λ", d.lam_gap)):
        if gap is not None:
            i, j = "uv" if _sums(d) else gap.pair
            label = f"  largest |{letter}_{i}{j} − {letter}_{j}{i}|"
            rows.append((label, f"{gap.value:.3g}", f"at {gap.where}" if gap.value else ""))
    return rows


def _rates(rates: list[str]) -> str:
    """Of the drift, and of the noises where any has one."""
    of_noises = (
        f", of the noises {_some(rates[1:])}" if any(rate != "0" for rate in rates[1:]) else ""
    )
    return f"ν = {rates[0]}{of_noises}"


def _constraints(d: "Diagnosis") -> list[tuple[str, ...]]:
    if d.constraints is None:
        return []
    found = d.constraints
    rank = f"rank of Dg {found.rank}, on a manifold of dimension {found.dimension}"
    place = _some([f"{x:.3g}" for x in found.where])
    word = "REDUNDANT at" if found.is_singular else f"least eigenvalue {found.least:.2g} at"
    groups = f"in {counted(found.blocks, 'block')}"
    groups += "" if found.is_met else "; NOT met: no state could be moved to them"
    return [("constraints", str(found.count), f"{groups}; {rank}; {word} q = [{place}]")]


def _sums(d: "Diagnosis") -> bool:
    """Whether random sums of noises were tried instead of every one."""
    return d.system.noises > MOST_TERMS


def _evidence(d: "Diagnosis", fact: str) -> str:
    evidence = d.evidence[fact]
    in_some = f", tested in {d.directions} random directions"
    return _EVIDENCE[evidence] + (in_some if d.directions and evidence == "sampled" else "")


def _matrices(d: "Diagnosis") -> str:
    if d.friction is None or d.system.dim > 2 or len(d.friction) > 3 or d.conformal:
        return ""
    names = ["F", *(f"f{i}" for i in range(1, len(d.friction)))]
    texts = [np.array2string(m, precision=4, separator=", ") for m in d.friction]
    return ", ".join(
        f"{name}: {' '.join(text.split())}" for name, text in zip(names, texts, strict=True)
    )


def _invariants(d: "Diagnosis") -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, found in d.invariants.items():
        label = name if found.declared else f"{name} (not declared)"
        kind = "quadratic" if found.quadratic else "not quadratic"
        if found.holds:
            fields = "the drift and sums of noises" if _sums(d) else "every field"
            fields += f" and {d.system.flow.name}" if d.system.flow else ""
            rows.append((label, "holds", f"along {fields}, at every sampled state; {kind}"))
        else:
            verdict = "FAILS" if found.declared else "changes"
            place = f"at {found.where}"
            rows.append((label, verdict, f"by {found.largest:.3g} along {found.along} {place}"))
    return rows


def _kind(d: "Diagnosis") -> str:
    words = KIND_IN_WORDS[d.noise_kind]
    return words if d.system.flow is None else f"{words} besides {d.system.flow.name}"


def _flow(d: "Diagnosis") -> list[str]:
    """What the flow does, before and after every step of a method."""
    if d.system.flow is None:
        return []
    rows = [
        (
            tried.name if tried.declared else f"{tried.name} (not declared)",
            "kept" if tried.holds else "FAILS" if tried.declared else "changes",
            f"by {tried.change:.0e} of it, tried",
        )
        for tried in d.flow
    ]
    title = f"{d.system.flow.name}, before and after every step; the rest is without them"
    return [title, *table(rows), ""]


def _methods(d: "Diagnosis") -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("", "strong", "weak", "structure", "to solve in a step")]
    none = "unknown" if d.system.flow else "-"
    for v in d.methods:
        orders = [none if order is None else number_text(order) for order in (v.strong, v.weak)]
        kept = KEPT.get(v.keeps, v.keeps)
        rows.append((v.name, *orders, kept, "refused" if v.refused else v.cost))
    return rows


def _notes(d: "Diagnosis") -> list[str]:
    notes = []
    if d.system.flow is not None:
        notes += [
            "orders are those of the composition, which the fields do not decide: it is symmetric, "
            "so that its weak order is 2 where those of the flow and of the method are",
            "paths of one noise come together with order 1 at most if the flow is exact in law "
            "alone, and with order 1/2 if its noises do not commute; see the page on plasmas",
        ]
    elif d.noise_kind == "none":
        notes.append("without noise both columns are the order of the differential equation")
    if not d.commutative:
        able = [name for name, make in METHODS.items() if _reads_areas(make(), d.system.noises)]
        who = ", ".join(able) or "methods that read them take fewer noises"
        notes.append(f"a strong order above 1/2 needs Lévy areas here: {who}")
    if d.noise_kind in ("one", "commuting", "general"):
        notes.append(
            "implicit methods with Gaussian increments may need bounded ones: a run says when, and "
            "names a truncation that keeps the noise; weak methods have bounded increments"
        )
    if not d.additive and d.evidence["additive"] == "sampled":
        notes.append(
            "the noise looks constant: methods for additive noise take it if h and f are written "
            "so that their derivatives show it, for example h = σ q without a case distinction"
        )
    keepers = [v.name for v in d.methods if v.keeps_quadratic and not v.refused]
    for name, found in d.invariants.items():
        if found.declared and not found.holds:
            notes.append(f"{name} was declared an invariant, and is none")
        elif found.holds and found.quadratic and keepers:
            notes.append(f"{name} is quadratic, so it is kept exactly by {', '.join(keepers)}")
        elif found.holds and not found.quadratic:
            notes.append(f"{name} is not quadratic: structured methods keep it nearly, not exactly")
    if d.linear and d.system.dim <= MAX_DIM:
        notes.append("linear: da.exact_moments gives every method's own moments without sampling")
    return notes


def _reads_areas(method: Method, noises: int) -> bool:
    return method.takes(noises) and "area" in method.needs(noises)


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:4]) + (", …" if len(texts) > 4 else "")


def _item(text: str, indent: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent=f"{indent}- ", subsequent_indent=f"{indent}  ")
