"""Traces are walked in one way, and what is known of primitives stands in one table."""

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jcore
from jax.extend.core import Primitive

import dalembert
from dalembert.dependence import Degree, degree
from dalembert.primitives import PRIMITIVES, Facts
from dalembert.stepping import scalarise
from dalembert.traces import (
    apply_equation,
    called,
    closed,
    contains,
    equations,
    evaluate,
    facts,
    literal,
    numbers,
    reads_argument,
    walk,
)

X = np.array([0.5, 2.0])


@jax.custom_jvp
def ruled(x):
    return 3.0 * x


ruled.defjvp(lambda x, dx: (ruled(*x), 3.0 * dx[0]))


def nested(x):
    """Calls, a loop and a branch, each with a number of its own in it."""
    y = jax.jit(lambda x: x + np.float64(11.0))(x)
    y = jax.checkpoint(lambda x: x * np.float64(13.0))(ruled(y))
    y = lax.fori_loop(0, 3, lambda _, a: a - np.float64(17.0), y)
    return lax.cond(y[0] > 0, lambda a: a / np.array([2.0, 19.0]), jnp.sin, y)


def by_rule(eqn, inputs):
    inner = called(eqn)
    return (
        apply_equation(eqn, inputs) if inner is None else evaluate(inner, inputs, by_rule, as_it_is)
    )


def as_it_is(value, _):
    return value


def test_a_trace_evaluated_by_its_own_operations_gives_what_the_function_gives():
    trace = jax.make_jaxpr(nested)(X)
    assert np.array_equal(evaluate(trace, [X], by_rule, as_it_is)[0], nested(X))
    assert not np.array_equal(evaluate(trace, [X + 1e-9], by_rule, as_it_is)[0], nested(X))


def test_constants_arguments_and_literals_reach_the_rule():
    table = np.array([5.0, 7.0])
    trace = jax.make_jaxpr(lambda x: (x + table) * 2.0)(X)
    seen = []

    def rule(eqn, inputs):
        seen.append((eqn.primitive.name, *inputs))
        return [len(seen)]

    assert walk(trace, ["table", "x"], rule, lambda v: float(literal(v))) == [2]
    assert seen == [("add", "x", "table"), ("mul", 1, 2.0)]


def test_everything_inside_is_found():
    trace = jax.make_jaxpr(nested)(X)
    names = {eqn.primitive.name for eqn in equations(trace)}
    assert {"jit", "add", "custom_jvp_call", "mul", "sub", "cond", "div", "sin"} <= names
    found = {float(x) for array in numbers(trace) for x in np.ravel(array)}
    assert {11.0, 3.0, 13.0, 17.0, 19.0} <= found
    assert contains(trace, ("sin",)) and not contains(trace, ("cos",))


def test_calls_are_told_from_loops_and_branches():
    trace = jax.make_jaxpr(nested)(X)
    kinds = {eqn.primitive.name: called(eqn) is not None for eqn in trace.jaxpr.eqns}
    loop = "scan" if "scan" in kinds else "while"
    assert all(is_call for name, is_call in kinds.items() if name.startswith(("jit", "custom")))
    assert kinds.get("remat2", kinds.get("checkpoint")) and not kinds[loop] and not kinds["cond"]


def test_a_trace_without_its_constants_takes_them_as_arguments():
    trace = jax.make_jaxpr(lambda x: x + X)(X)
    if jcore.Jaxpr is jcore.ClosedJaxpr:
        assert closed(trace) is trace
    else:
        opened = closed(trace.jaxpr)
        assert len(opened.jaxpr.invars) == 2 and not opened.consts


def test_which_arguments_are_read():
    trace = jax.make_jaxpr(lambda x, y: jnp.sin(x))(X, X)
    assert reads_argument(trace, 0) and not reads_argument(trace, 1)


# --- the table ---------------------------------------------------------------------------------


def named(field):
    return {form for form in (getattr(known, field) for known in PRIMITIVES.values()) if form}


def test_every_form_in_the_table_is_written_and_every_one_that_is_written_is_in_it():
    assert {f.split()[0] for f in named("scalar")} == set(scalarise.FORMS)
    words = {f.split()[1] for f in named("scalar") if f.startswith(("fold", "reduce"))}
    assert words == set(scalarise._RULES)


def test_every_form_of_vector_code_is_written():
    lanes = pytest.importorskip("dalembert.ensemble.lanes")
    assert {f.split()[0] for f in named("vector")} == set(lanes.FORMS)


def test_a_primitive_is_known_by_one_entry(monkeypatch):
    """One entry is all that analysis and scalar code need."""
    twice = Primitive("twice")
    twice.def_impl(lambda x: 2 * x)
    twice.def_abstract_eval(lambda x: x)
    at = jax.ShapeDtypeStruct((2,), np.float64)
    assert degree(twice.bind, (at,), (0,)) is Degree.NONLINEAR
    with pytest.raises(scalarise.NotScalarError, match="twice"):
        scalarise.scalarise(twice.bind, at)
    monkeypatch.setitem(PRIMITIVES, "twice", Facts("linear", "each"))
    assert degree(twice.bind, (at,), (0,)) is Degree.AFFINE
    assert scalarise.scalarise(twice.bind, at)(X).tolist() == [1.0, 4.0]


def test_a_name_that_somebody_else_uses_is_not_taken_for_that_of_jax():
    add = Primitive("add")
    add.def_abstract_eval(lambda x, y: x)
    (eqn,) = jax.make_jaxpr(add.bind)(1.0, 2.0).jaxpr.eqns
    assert facts(eqn) == Facts()


def test_the_insides_of_traces_are_read_in_one_module():
    """Classes of traces and lists of equations are named nowhere else."""
    root = Path(dalembert.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if path.name == "traces.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("eqns", "ClosedJaxpr", "Jaxpr", "Literal"), path
