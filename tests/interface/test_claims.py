"""What is said about the orders of a method is said alike everywhere, and from one table."""

import inspect
import re
from fractions import Fraction
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import dalembert as da
from dalembert.stepping.step import check_method
from dalembert.theory.advice import advise_special
from dalembert.theory.diagnosis import for_every_system
from tiers import tiered

HELD = {name: make for name, make in da.METHODS.items() if "constraints" in make().requires}
ALL = {name: make for name, make in da.METHODS.items() if name not in HELD}
README = (Path(__file__).parents[2] / "README.md").read_text()


def H(q, p):
    """Kinetic energy that is not quadratic: the drift is curved along every noise in momenta."""
    return jnp.sum(jnp.sqrt(1 + p**2)) + jnp.sum(q**4) / 4


# One system for each kind of noise. The additive one is a Langevin equation, which all methods for
# additive noise take. No drift is affine along the noise, so that nothing is gained.
SYSTEMS = {
    "one": da.System(H=H, h=[lambda q, p: jnp.sin(q[0]) * p[0]], dim=1, name="one"),
    "additive": da.System(
        H=H,
        F=lambda q, p: -0.5 * p,
        h=[lambda q, p: 0.3 * q[0], lambda q, p: 0.4 * q[1]],
        dim=2,
        name="additive",
    ),
    "commuting": da.System(
        H=H, h=[lambda q, p: jnp.sin(q[0]), lambda q, p: jnp.cos(q[0])], dim=1, name="commuting"
    ),
    "general": da.System(
        H=H, h=[lambda q, p: jnp.sin(q[0]), lambda q, p: jnp.sin(p[0])], dim=1, name="general"
    ),
}


@cache
def diagnosis(kind):
    found = da.diagnose(SYSTEMS[kind], methods=[make() for make in ALL.values()])
    assert found.noise_kind == kind and not found.straight_drift
    return found


def verdicts(kind):
    return dict(zip(ALL, diagnosis(kind).methods, strict=True))


def refuses(kind, method):
    try:
        check_method(SYSTEMS[kind], method)
    except ValueError:
        return True
    return False


@pytest.mark.parametrize("kind", SYSTEMS)
@pytest.mark.parametrize("name", ALL)
def test_a_method_has_an_order_where_it_takes_the_noise(name, kind):
    method = ALL[name]()
    certificate = da.certify(method)
    refused = refuses(kind, method)
    assert (certificate.weak_order[kind] is None) == refused
    assert (certificate.order[kind] is None) == refused


by_kind = pytest.mark.parametrize("kind", tiered(SYSTEMS, fast=["general"]))


@by_kind
def test_a_diagnosis_says_what_certificates_say(kind):
    for name, verdict in verdicts(kind).items():
        certificate = da.certify(verdict.method)
        assert bool(verdict.refused) == refuses(kind, verdict.method), name
        assert verdict.weak == certificate.weak_order[kind], name
        is_strong = certificate.convergence == "mean-square"
        assert verdict.strong == (certificate.order[kind] if is_strong else None), name


@by_kind
def test_solvers_of_diffrax_say_what_certificates_say(kind, monkeypatch):
    diffrax = pytest.importorskip("diffrax")
    from dalembert import diffrax as dd

    monkeypatch.setattr(dd, "diagnose", lambda system, methods: Only(kind, methods[0]))
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    control = diffrax.UnsafeBrownianPath((SYSTEMS[kind].noises,), jax.random.key(0))
    terms = dd.terms(SYSTEMS[kind], control)
    for name, verdict in verdicts(kind).items():
        if verdict.method.convergence == "weak":
            continue
        reads = verdict.method.needs(SYSTEMS[kind].noises) if not verdict.refused else set()
        if verdict.refused or reads - {"dW", "dZ"}:
            with pytest.raises(ValueError, match=re.escape(verdict.name)):
                dd.MethodSolver(verdict.method).strong_order(terms)
        else:
            found = dd.MethodSolver(verdict.method).strong_order(terms)
            assert found == verdict.strong == da.certify(verdict.method).order[kind], name


@pytest.mark.slow
def test_a_diagnosis_of_constraints_says_what_certificates_say():
    found = da.diagnose(da.systems.brownian_sphere(), methods=[make() for make in HELD.values()])
    assert found.noise_kind == "additive" and len(found.methods) == len(HELD) > 3
    for name, verdict in zip(HELD, found.methods, strict=True):
        certificate = da.certify(verdict.method)
        is_strong = certificate.convergence == "mean-square"
        assert not verdict.refused, name
        assert verdict.weak == certificate.weak_order["additive"] > 0, name
        assert verdict.strong == (certificate.order["additive"] if is_strong else None), name


def test_methods_for_constraints_refuse_systems_without_and_the_other_way_round():
    sphere, free = da.systems.brownian_sphere(), SYSTEMS["additive"]
    for name, make in da.METHODS.items():
        wrong, said = (free, "constraints") if name in HELD else (sphere, "constraint")
        with pytest.raises(ValueError, match=said):
            check_method(wrong, make())
        with pytest.raises(ValueError, match=said):
            da.explain(wrong, make())


def test_solvers_of_diffrax_with_names_are_the_named_methods():
    pytest.importorskip("diffrax")
    from dalembert import diffrax as dd

    named = {
        name: getattr(dd, name) for name in dd.__all__ if name not in ("MethodSolver", "terms")
    }
    for name, make in named.items():
        method = make().method
        assert method == ALL[method.name.partition("(")[0]]()
        assert method.name.partition("(")[0].replace("_", "") == name.lower()
        assert "order" not in (inspect.getdoc(make) or ""), "da.diagnose says it, by system"


@by_kind
def test_a_recommendation_says_what_the_method_does_there(kind):
    found = diagnosis(kind)
    for advice, verdict in advise_special(found):
        reason, *_ = advice.reasons
        assert not verdict.refused and ALL[advice.method]() == verdict.method
        said = re.findall(r"(mean-square|weak) order ([\d/]+)", reason)
        assert advice.purpose == "sampling" or said, reason
        for sense, order in said:
            stated = {"mean-square": verdict.strong, "weak": verdict.weak}[sense]
            assert float(Fraction(order)) == stated, reason
        assert ("Lévy areas" in reason) == ("area" in verdict.method.needs(found.system.noises))


@by_kind
def test_a_diagnosis_names_the_methods_that_read_areas(kind):
    """Those, and no others, where noises do not commute; nothing is said elsewhere."""
    noises = SYSTEMS[kind].noises
    readers = [v.name for v in verdicts(kind).values() if "area" in needs_of(v, noises)]
    notes = re.search(r"needs Lévy areas here: ([\w, ]+)", " ".join(str(diagnosis(kind)).split()))
    assert (notes is None) == (kind != "general")
    if notes:
        assert notes[1].strip().split(", ") == readers == ["bracket_midpoint"]


def needs_of(verdict, noises):
    return set() if verdict.refused else verdict.method.needs(noises)


def test_families_say_what_they_take():
    taken = {name: da.certify(make()).takes for name, make in da.METHODS.items()}
    assert taken["midpoint"] == "any noises" and taken["srkw2"] == "one noise"
    for name, words in taken.items():
        method = da.METHODS[name]()
        assert ("noises" in words) == (method.takes(2) and not method.requires)
        assert bool(method.requires) == (words not in ("any noises", "one noise")), name


class Only:
    """The diagnosis of one method among those that are known already."""

    def __init__(self, kind, method):
        self.methods = [v for v in verdicts(kind).values() if v.method == method]


def text(order):
    return "-" if order is None else f"{order:g}"


def test_the_program_lists_what_certificates_say():
    from typer.testing import CliRunner

    from dalembert.commands import app

    lines = CliRunner().invoke(app, ["list"], env={"COLUMNS": "200"}).output.splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line.strip()}
    for name, make in da.METHODS.items():
        order = da.certify(make()).order
        assert rows[name][-3:] == [text(order[kind]) for kind in ("one", "additive", "general")]


NUMBER = {"½": 0.5, "3/2": 1.5}


@pytest.mark.parametrize("name", da.METHODS)
def test_docstrings_say_what_certificates_say(name):
    """The numbers behind "mean-square" and "weak" are the certified ones, the best of each first.

    A line ends at the first full stop; what holds for special drifts stands behind "where".
    """
    said = re.search(r"Order: (.*?)\.(?:\s|$)", inspect.getdoc(da.METHODS[name]), re.DOTALL)
    words = " ".join(said[1].split())
    certificate = da.certify(da.METHODS[name]())
    claims = {"weak": certificate.weak_order.values()}
    if certificate.convergence == "mean-square":
        claims["mean-square"] = certificate.order.values()
    for sense, orders in claims.items():
        numbers = re.findall(rf"{sense} (½|3/2|\d)", words)
        numbers += re.findall(r"(?<=, )(½|1)(?= for others| otherwise)", words)
        stated = {NUMBER.get(n) or float(Fraction(n)) for n in numbers}
        assert {order for order in orders if order} <= stated, (sense, words)


def test_the_readme_says_what_certificates_say():
    rows = re.findall(r"^\| (`.*?) \| (mean-square|weak) \| (.*?) / (.*?) \|", README, re.MULTILINE)
    told = {
        name: (sense, *map(read, orders))
        for names, sense, *orders in rows
        for name in re.findall(r"`(\w+)", names)
    }
    assert set(told) == set(for_every_system())
    for name, (sense, one, general) in told.items():
        certificate = da.certify(da.METHODS[name]())
        assert (sense, one, general) == (
            certificate.convergence,
            certificate.order["one"],
            certificate.order["general"],
        ), name


def read(order):
    return None if order == "one noise only" else NUMBER.get(order) or float(order)
