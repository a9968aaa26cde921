"""The order of work that the tableau and the system allow, and the words for it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.stepping import plan as planning
from dalembert.stepping.plan import Node, make_plan
from dalembert.stepping.requirements import TermsTracedOnce, find_dependence
from dalembert.stepping.stepper import make_stepper

# All conditions hold, with different weights of H, F, h and f (docs: the DIRK family is not the
# most general one).
W, W_HAT, B, B_HAT = (0.3, 0.7), (0.1, 0.9), (0.6, 0.4), (0.6, 0.4)


def diagonally_implicit(weights):
    first, second = weights
    return [[first / 2, 0], [first, second / 2]]


def general_dirk():
    return da.MeanSquareTableau(
        a=diagonally_implicit(W),
        a_bar=diagonally_implicit(W),
        a_hat=diagonally_implicit(W),
        b=diagonally_implicit(B),
        b_bar=diagonally_implicit(B),
        b_hat=diagonally_implicit(B),
        alpha=W,
        alpha_hat=W_HAT,
        beta=B,
        beta_hat=B_HAT,
        name="general dirk",
    )


def gauss():
    """The two-stage Gauss method, fully implicit."""
    r = np.sqrt(3) / 6
    a, w = [[0.25, 0.25 - r], [0.25 + r, 0.25]], [0.5, 0.5]
    return da.MeanSquareTableau(*[a] * 6, *[w] * 4, name="gauss")


EXPLICIT = ("heun", "r2", "e1", "rs1", "rs2")
IMPLICIT = {
    "midpoint": da.midpoint(),
    "stormer_verlet": da.stormer_verlet(),
    "dirk": da.dirk(0.3),
    "srkw1": da.srkw1(0.25),
    "srkw2": da.srkw2(),
    "general dirk": general_dirk(),
    "gauss": gauss(),
}


@cache
def ready_made(name):
    return da.SYSTEMS[name]()


def plan_of(system, method, shortcuts=True):
    z = jax.ShapeDtypeStruct((system.dim,), np.float64)
    rows = method.rows(system.noises)
    terms = {entry.term for row in (*rows.q_rows, *rows.p_rows) for entry in row}
    return make_plan(rows, find_dependence(TermsTracedOnce(system, z), terms), shortcuts)


def equations(plan, dim):
    """Numbers of equations that are solved together, block by block."""
    return [dim * len(block.unknowns) for block in plan.blocks if block.unknowns]


def stage_vectors(plan):
    """Numbers of positions and of momenta that are computed besides the new state."""
    nodes = {n for block in plan.blocks for n in (*block.unknowns, *block.explicit)}
    nodes -= {plan.new_q, plan.new_p}
    return tuple(sum(node.kind == kind for node in nodes) for kind in "qp")


def free(q, p):
    return jnp.dot(p, p) / 2


def separable(q, p):
    return free(q, p) + jnp.sum(jnp.cos(q))


def mixed(q, p):
    return separable(q, p) + jnp.sum(jnp.sin(q) * jnp.sin(p))


def friction(q, p):
    return -0.1 * p


def drag(q, p):
    return -0.1 * p**3


def shaken(q, p):
    return 0.3 * jnp.sum(jnp.cos(q))


def additive(q, p):
    return -0.3 * q[0]


# --- every plan computes every row it needs, in order -----------------------------------------


@pytest.mark.parametrize(
    ("system", "method"),
    [
        (system, method)
        for system in da.systems.FEW
        for method in (*IMPLICIT, *EXPLICIT)
        if (system, method) != ("two_noise", "srkw2")
    ],
)
@pytest.mark.parametrize("shortcuts", [True, False], ids=["shortcuts", "no shortcuts"])
def test_every_row_is_computed_once_from_rows_that_are_known(system, method, shortcuts):
    system = ready_made(system)
    method = IMPLICIT.get(method) or da.METHODS[method]()
    plan = plan_of(system, method, shortcuts)
    known = {Node("q", 0), Node("p", 0)}
    for block in plan.blocks:
        assert not known & {*block.unknowns, *block.explicit}
        known |= set(block.unknowns)
        for node in block.explicit:
            assert needed(plan, node) <= known, node
            assert node not in known
            known.add(node)
        for node in block.unknowns:
            assert needed(plan, node) <= known, node
    assert {plan.new_q, plan.new_p} <= known


def needed(plan, node):
    """The rows whose values a row is computed from."""
    return {Node("q", e.q_row) for e in plan.rows[node]} | {
        Node("p", e.p_row) for e in plan.rows[node]
    }


# --- explicit ----------------------------------------------------------------------------------


@pytest.mark.parametrize("system", da.systems.FEW)
@pytest.mark.parametrize("method", EXPLICIT)
def test_explicit_methods_solve_nothing(system, method):
    assert equations(plan_of(ready_made(system), da.METHODS[method]()), 1) == []


def test_stormer_verlet_without_forces_is_explicit():
    system = da.System(H=separable, h=[shaken], dim=3)
    plan = plan_of(system, da.stormer_verlet())
    assert equations(plan, 3) == []
    assert stage_vectors(plan) == (0, 1)
    assert "equations to solve: none, explicit" in da.explain(system, da.stormer_verlet())


@pytest.mark.parametrize("method", ["midpoint", "dirk", "srkw1", "srkw2", "gauss"])
def test_free_motion_with_additive_noise_is_explicit(method):
    """Constant forces and a velocity that is a function of p: no stage refers to itself."""
    system = da.System(H=free, F=lambda q, p: jnp.ones(2), h=[additive], dim=2)
    assert equations(plan_of(system, IMPLICIT[method]), 2) == []


# --- stage by stage ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dirk", "general dirk"])
@pytest.mark.parametrize(("H", "each"), [(separable, 2), (mixed, 4)], ids=["separable", "mixed"])
def test_diagonally_implicit_methods_are_solved_stage_by_stage(method, H, each):
    system = da.System(H=H, F=drag, h=[shaken], dim=2)
    assert equations(plan_of(system, IMPLICIT[method]), 2) == [each, each]


def test_fully_implicit_methods_are_solved_at_once():
    system = da.System(H=mixed, F=drag, h=[shaken], dim=2)
    assert equations(plan_of(system, gauss()), 2) == [8]
    system = da.System(H=separable, F=drag, h=[shaken], dim=2)
    assert equations(plan_of(system, gauss()), 2) == [4]


@pytest.mark.parametrize("lam", [0, 1])
def test_dirk_with_an_empty_stage_is_the_midpoint_method(lam):
    system = ready_made("planar")
    plan, midpoint = plan_of(system, da.dirk(lam)), plan_of(system, da.midpoint())
    assert equations(plan, 2) == equations(midpoint, 2) == [4]
    assert stage_vectors(plan) == stage_vectors(midpoint) == (1, 1)


@pytest.mark.parametrize(("lam", "expected"), [(0, [2, 4]), (1, [4, 2])])
def test_srkw1_with_decoupled_stages_is_solved_stage_by_stage(lam, expected):
    """The drift of `planar` is separable, its noise is not: 2 and 4 equations."""
    assert equations(plan_of(ready_made("planar"), da.srkw1(lam)), 2) == expected


def test_srkw1_in_general_is_solved_at_once():
    assert equations(plan_of(ready_made("planar"), da.srkw1(0.25)), 2) == [6]
    coupled = da.System(H=mixed, F=drag, h=[mixed], f=[drag], dim=2)
    assert equations(plan_of(coupled, da.srkw1(0.25)), 2) == [8]


# --- separable Hamiltonians --------------------------------------------------------------------

UNKNOWNS_OF_MIDPOINT = {
    "damped_kubo": [1],
    "van_der_pol": [1],
    "lenard_bernstein": [1],
    "lorentz": [2],
    "langevin": [1],
    "pendulum": [1],
    "two_noise": [1],
    "planar": [4],
}


@pytest.mark.parametrize("name", da.systems.FEW)
def test_separable_hamiltonians_halve_the_unknowns_of_the_midpoint_method(name):
    system = ready_made(name)
    assert equations(plan_of(system, da.midpoint()), system.dim) == UNKNOWNS_OF_MIDPOINT[name]
    everything = plan_of(system, da.midpoint(), shortcuts=False)
    assert equations(everything, system.dim) == [2 * system.dim]


def test_momenta_that_nothing_needs_are_not_solved_for():
    """Without a potential the friction alone is implicit: the positions follow."""
    system = da.System(H=free, F=friction, h=[additive], dim=2)
    plan = plan_of(system, da.midpoint())
    assert equations(plan, 2) == [2]
    assert stage_vectors(plan) == (0, 1)


# --- SRKw2 and SRKw1 ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in da.systems.FEW if n != "two_noise"])
def test_srkw2_needs_at_most_six_stage_vectors_of_each_kind(name):
    system = ready_made(name)
    positions, momenta = stage_vectors(plan_of(system, da.srkw2()))
    assert positions <= 6 and momenta <= 6
    assert stage_vectors(plan_of(system, da.srkw2(), shortcuts=False)) == (8, 8)


def test_srkw2_drops_exactly_its_needless_stages_where_everything_is_coupled():
    plan = plan_of(da.System(H=mixed, F=drag, h=[mixed], f=[drag], dim=1), da.srkw2())
    assert stage_vectors(plan) == (6, 6)
    assert len(plan.blocks) == 2


@pytest.mark.parametrize("name", ["van_der_pol", "lenard_bernstein", "langevin"])
def test_srkw2_with_additive_noise_is_solved_stage_by_stage(name):
    plan = plan_of(ready_made(name), da.srkw2())
    assert equations(plan, 1) == [1, 1, 1, 1]
    assert stage_vectors(plan) == (4, 4)


@pytest.mark.parametrize("name", da.systems.FEW)
def test_srkw1_with_one_half_is_the_midpoint_method(name):
    """Its drift and noise stages coincide: the plans are equal but for the number of the update."""
    system = ready_made(name)
    midpoint, weak = (plan_of(system, m) for m in (da.midpoint(), da.srkw1(0.5)))

    def written(plan):
        names = {plan.new_q: "new q", plan.new_p: "new p"}
        rows = {names.get(node, node): set(row) for node, row in plan.rows.items() if node.number}
        order = [
            [[names.get(n, n) for n in part] for part in (b.unknowns, b.explicit)]
            for b in plan.blocks
        ]
        return rows, order

    assert written(weak) == written(midpoint)


def test_srkw1_with_another_parameter_is_not_the_midpoint_method():
    system = ready_made("damped_kubo")
    assert stage_vectors(plan_of(system, da.srkw1(0.25))) == (2, 2)
    assert stage_vectors(plan_of(system, da.srkw1(0.5))) == (1, 1)


# --- Störmer–Verlet ----------------------------------------------------------------------------


def test_stormer_verlet_with_linear_friction_solves_one_linear_system():
    system = da.System(H=separable, F=friction, h=[shaken], f=[friction], dim=3, name="damped")
    plan = plan_of(system, da.stormer_verlet())
    assert equations(plan, 3) == [3]
    assert stage_vectors(plan) == (0, 1)
    text = da.explain(system, da.stormer_verlet())
    assert "1. solve for P1 (linear, one Newton step)\n" in text
    assert "2. explicit: q_new, p_new" in text
    assert "equations to solve: 3" in text


def test_stormer_verlet_with_nonlinear_drag_solves_a_nonlinear_system():
    text = da.explain(da.System(H=separable, F=drag, dim=3), da.stormer_verlet())
    assert "solve for P1 (nonlinear, Newton)" in text


def test_stormer_verlet_with_a_mixed_hamiltonian_solves_two_systems():
    system = da.System(H=mixed, F=friction, dim=2)
    assert equations(plan_of(system, da.stormer_verlet()), 2) == [2, 2]


# --- words -------------------------------------------------------------------------------------


def test_explanation_of_a_linear_system():
    text = da.explain(ready_made("damped_kubo"), da.midpoint())
    assert text == (
        "midpoint on damped_kubo (dim 1, 1 noise)\n"
        "  terms: H_p(p (linear)); H_q(q (linear)); F(p (linear)); h1_p(p (linear)); "
        "h1_q(q (linear));\n    f1(p (linear))\n"
        "  stage vectors: 2 in the tableau, 2 needed besides the new state\n"
        "  1. solve for P1 (linear, one Newton step); Q1 by substitution\n"
        "  2. explicit: p_new, q_new\n"
        "  equations to solve: 1\n"
        "  regime: scalars, written out\n"
        "  engine on this machine: vector code (LLVM)"
    )


def test_explanation_names_terms_that_vanish_or_do_not_vary():
    text = da.explain(ready_made("van_der_pol"), da.srkw2())
    assert "F(q, p (linear)); h1_p = 0; h1_q constant; f1 = 0" in text
    assert "stage vectors: 16 in the tableau, 8 needed besides the new state" in text
    assert "equations to solve: 1 + 1 + 1 + 1" in text


def test_explanation_of_several_noises():
    text = da.explain(ready_made("two_noise"), da.rs2())
    assert "rs2 on two_noise (dim 1, 2 noises)" in text
    assert "h1_p(p); h1_q = 0; f1 = 0; h2_p = 0; h2_q(q); f2(p)" in text
    assert "equations to solve: none, explicit" in text


def test_explanation_of_a_large_system():
    system = da.System(H=separable, F=friction, dim=50, name="large")
    text = da.explain(system, da.midpoint())
    assert "large (dim 50, 0 noises)" in text
    assert "arrays, sweeps, then Newton by products with vectors (50 components are too" in text


def test_explanation_refuses_what_a_step_refuses():
    with pytest.raises(ValueError, match=r"srkw2 takes at most 1 noise\(s\), the system has 2"):
        da.explain(ready_made("two_noise"), da.srkw2())
    with pytest.raises(TypeError, match="Call the function to get the method"):
        da.explain(ready_made("two_noise"), da.midpoint)


# --- rows that were solved for -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "weights"),
    [
        (da.midpoint(), {0: -1.0, 1: 2.0}),
        (da.stormer_verlet(), {1: 1.0}),
        (da.dirk(), {0: 1.0, 1: -2.0, 2: 2.0}),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_a_new_momentum_is_made_of_solved_ones(method, weights):
    plan = make_stepper(da.systems.lenard_bernstein(), method, np.float64).plan
    assert {node.number: w for node, w in plan.start(plan.new_p).items()} == weights


def test_large_weights_of_solved_rows_are_not_used(monkeypatch):
    stepper = make_stepper(da.systems.lenard_bernstein(), da.midpoint(), np.float64)
    monkeypatch.setattr(planning, "MAX_WEIGHT", 1.5)
    assert not make_plan(da.midpoint().rows(1), stepper.dependence).starts
