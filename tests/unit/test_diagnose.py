"""Diagnoses: the right answers on every ready-made system, wrong claims caught, the page read."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.theory.diagnosis import Diagnosis, diagnose, for_every_system
from dalembert.theory.facts import Probe
from tiers import tiered


def ready_made(name):
    """Langevin in two dimensions."""
    return da.systems.langevin(dim=2) if name == "langevin" else da.SYSTEMS[name]()


@cache
def of(name):
    """The whole diagnosis of a ready-made system, with every method."""
    return diagnose(ready_made(name))


@cache
def structure(name):
    """The diagnosis of the system alone, which is what most facts need."""
    return diagnose(ready_made(name), methods=[])


JUDGED = ["damped_kubo", "van_der_pol", "two_noise", "langevin"]
"""Systems for which every method is judged in the fast tests."""


def verdict(diagnosis, name):
    return next(v for v in diagnosis.methods if v.name.partition("(")[0] == name)


FACTS = {
    #                   separable linear-in-p conformal linear additive commutative kind
    "damped_kubo": (True, True, True, True, False, True, "one"),
    "van_der_pol": (True, True, False, False, True, True, "additive"),
    "lenard_bernstein": (True, True, True, False, True, True, "additive"),
    "lorentz": (True, True, False, False, False, True, "one"),
    "langevin": (True, True, True, True, True, True, "additive"),
    "pendulum": (True, True, False, False, False, True, "one"),
    "two_noise": (True, False, False, False, False, False, "general"),
    "planar": (False, True, False, False, False, True, "one"),
}


def test_every_system_is_covered():
    assert set(FACTS) == set(da.systems.FEW)


@pytest.mark.parametrize("name", tiered(FACTS, fast=[*JUDGED, "lorentz", "pendulum"]))
def test_structure(name):
    d = structure(name)
    found = (
        d.separable,
        d.forcing_linear_in_p,
        d.conformal,
        d.linear,
        d.additive,
        d.commutative,
        d.noise_kind,
    )
    assert found == FACTS[name]


@pytest.mark.parametrize("name", tiered(FACTS, fast=JUDGED))
def test_the_page_is_readable(name):
    page = str(of(name))
    lines = page.splitlines()
    assert len(lines) <= 60
    assert lines[0].startswith(f"Diagnosis of {name} (dim ")
    for heading in ("Structure", "Invariants", "Methods on this system", "Recommendation"):
        assert heading in lines
    for method in for_every_system():
        assert any(line.split()[:1] and line.split()[0].startswith(method) for line in lines)
    assert of(name)._repr_html_().startswith("<pre>Diagnosis")
    assert len(repr(of(name))) < 100


def test_the_record_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        structure("damped_kubo").separable = False


# Forces


def test_rates_of_conformal_forces():
    assert structure("damped_kubo").rates == pytest.approx((0.001, 0.0005), rel=1e-12)
    assert structure("lenard_bernstein").rates == pytest.approx((0.01, 0.0), rel=1e-12)
    assert structure("langevin").rates == (1.0, 0.0, 0.0)
    assert structure("lorentz").rates is None


def test_friction_matrices():
    lorentz = structure("lorentz").friction
    root = np.sqrt(2 * 0.005)
    np.testing.assert_allclose(lorentz[0], np.zeros((2, 2)))
    np.testing.assert_allclose(lorentz[1], [[0, -root], [root, 0]], rtol=1e-14)
    assert structure("lorentz").evidence["friction"] == "traced"
    # Linear in p, but with a coefficient that depends on q.
    for name in ("van_der_pol", "pendulum", "planar"):
        assert structure(name).friction is None
        assert structure(name).evidence["friction"] == "counterexample"


def test_a_constant_force_is_linear_but_not_conformal():
    system = da.System(
        H=lambda q, p: (p[0] ** 2 + q[0] ** 2) / 2, F=lambda q, p: 0.2 - 0.5 * p, dim=1
    )
    d = diagnose(system, methods=[])
    assert d.forcing_linear_in_p
    np.testing.assert_allclose(d.friction[0], [[0.5]])
    assert not d.conformal
    assert d.evidence["conformal"] == "counterexample"


# Evidence


def test_what_the_functions_hide_is_found_by_sampling():
    """Each of these facts holds, but only after a cancellation that tracing does not see."""
    system = da.System(
        H=lambda q, p: p[0] ** 2 / 2 + jnp.log(jnp.exp(q[0] + p[0])) - p[0],
        F=lambda q, p: -0.3 * p * (jnp.sin(p) ** 2 + jnp.cos(p) ** 2),
        h=[lambda q, p: q[0] * (jnp.sin(q[0]) ** 2 + jnp.cos(q[0]) ** 2)],
        dim=1,
    )
    d = diagnose(system, methods=[])
    for fact in ("separable", "forcing_linear_in_p", "friction", "conformal", "additive"):
        assert d.evidence[fact] == "sampled", fact
    assert d.separable
    assert d.forcing_linear_in_p
    assert d.rates == pytest.approx((0.3, 0.0))
    assert "at every sampled state" in str(d)


def squared(q, p, params):
    return 0.5 * q[0] + params["strength"] * q[0] ** 2


LOOKS_CONSTANT = {
    "beyond the samples": (lambda q, p: jnp.where(q[0] < 1e3, 0.5 * q[0], q[0] ** 2), None),
    "rounded": (lambda q, p: 0.5 * q[0] * (1 + jnp.floor(jnp.abs(p[0]) / 1e3)), None),
    "cancelled": (lambda q, p: q[0] * (jnp.sin(q[0]) ** 2 + jnp.cos(q[0]) ** 2), None),
    "by its parameter": (squared, {"strength": 0.0}),
}


FEW = (da.midpoint(), da.additive_midpoint())


@pytest.mark.parametrize("methods", [FEW, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "case", tiered(LOOKS_CONSTANT, fast=["beyond the samples", "by its parameter"])
)
def test_what_is_recommended_is_taken(case, methods):
    """Noise that only looks constant: a method that a run refuses is not recommended."""
    h, params = LOOKS_CONSTANT[case]
    oscillator = da.System(H=lambda q, p, *_: (p @ p + q @ q) / 2, h=[h], dim=1, params=params)
    d = diagnose(oscillator, methods=methods)
    assert not d.additive and d.evidence["additive"] == "sampled" and d.noise_kind == "one"
    assert "constant at every sampled state, not as written" in str(d)
    taken = {v.name.partition("(")[0] for v in d.methods if not v.refused}
    assert {advice.method for advice in d.recommendation} <= taken
    assert d.recommendation and "additive_midpoint" not in taken
    with pytest.raises(ValueError, match=r"h_q of noise 1 .*depends? on"):
        da.step(oscillator, da.additive_midpoint(), [0.1], [0.2], 0.1, [0.0])


def test_parameters_count_with_their_values():
    assert structure("van_der_pol").linear is False
    d = diagnose(da.systems.van_der_pol(nu=0.0), methods=[])
    assert d.linear
    assert d.conformal
    assert d.rates == (0.0, 0.0)


def test_points_decide_where_sampling_looks():
    """A kink far from the origin is invisible to the default states."""
    system = da.System(
        H=lambda q, p: p[0] ** 2 / 2,
        F=lambda q, p: -p - jnp.maximum(p - 100.0, 0.0) ** 2,
        dim=1,
    )
    assert diagnose(system, methods=[]).forcing_linear_in_p
    far = (np.array([[0.0], [0.0]]), np.array([[1.0], [120.0]]))
    d = diagnose(system, points=far, methods=[])
    assert d.states == 2
    assert not d.forcing_linear_in_p
    assert d.where["forcing_linear_in_p"].p == (120.0,)


def test_states_where_nothing_is_finite_are_left_out():
    system = da.System(H=lambda q, p: p[0] ** 2 / 2 + 1 / q[0] ** 2, dim=1, name="well")
    d = diagnose(system, methods=[])
    assert d.skipped == 1
    assert "1 more left out" in str(d)
    with pytest.raises(ValueError, match="'well' are not finite at any of the 1 states"):
        diagnose(system, points=([[0.0]], [[1.0]]))


# Noises


def test_two_noises_that_do_not_commute_and_where():
    d = of("two_noise")
    q, p = d.lam_gap.where.q[0], d.lam_gap.where.p[0]
    assert d.lam_gap.pair == (1, 2)
    # β₁β₂ cos p cos q is largest at the origin, which is one of the states.
    assert (q, p) == (0.0, 0.0)
    assert d.lam_gap.value == pytest.approx(0.25)
    q, p = d.gamma_gap.where.q[0], d.gamma_gap.where.p[0]
    expected = 0.5 * np.sin(p) * (0.5 * np.sin(q) - 0.1 * np.sin(p))
    assert d.gamma_gap.value == pytest.approx(abs(expected), rel=1e-12)
    assert d.gamma_gap.value > 0.25
    assert "largest |Λ_12 − Λ_21|  0.25  at q = [0], p = [0]" in str(d)
    assert "a strong order above 1/2 needs Lévy areas" in str(d)


def two_clocks(other):
    """Kubo's oscillator with a second multiplicative noise."""
    return da.System(
        H=lambda q, p: (p[0] ** 2 + q[0] ** 2) / 2,
        h=[lambda q, p: 0.5 * (p[0] ** 2 + q[0] ** 2) / 2, other],
        dim=1,
        name="two_clocks",
    )


def test_commuting_noises_are_recognised_and_a_change_of_one_is_caught():
    d = diagnose(two_clocks(lambda q, p: 0.2 * (p[0] ** 2 + q[0] ** 2)), methods=[da.heun()])
    assert d.noise_kind == "commuting"
    assert d.evidence["commutative"] == "sampled"
    assert max(d.gamma_gap.value, d.lam_gap.value) < 1e-12
    assert d.methods[0].strong == 1.0
    d = diagnose(two_clocks(lambda q, p: 0.2 * q[0] ** 2), methods=[da.heun()])
    assert d.noise_kind == "general"
    assert d.evidence["commutative"] == "counterexample"
    assert d.methods[0].strong == 0.5


def test_the_right_pair_of_three_is_named():
    system = da.System(
        H=lambda q, p: (p[0] ** 2 + q[0] ** 2) / 2,
        h=[lambda q, p: q[0], lambda q, p: 0.3 * q[0] ** 2, lambda q, p: 0.5 * p[0] ** 2],
        dim=1,
    )
    d = diagnose(system, methods=[])
    # Γ_13 − Γ_31 = −1 everywhere; Γ_23 − Γ_32 = −0.6 q grows beyond it.
    assert d.gamma_gap.pair == (2, 3)
    assert d.gamma_gap.value == pytest.approx(0.6 * abs(d.gamma_gap.where.q[0]), rel=1e-12)
    near = diagnose(system, points=([[0.1]], [[0.2]]), methods=[])
    assert near.gamma_gap.pair == (1, 3)
    assert near.gamma_gap.value == pytest.approx(1.0)


def test_additive_noises_need_no_brackets():
    d = structure("langevin")
    assert d.evidence["additive"] == d.evidence["commutative"] == "traced"
    assert d.gamma_gap is None
    assert d.lam_gap is None


def test_noise_of_strength_zero_is_no_noise():
    d = diagnose(da.systems.langevin(temperature=0.0), methods=[da.midpoint()])
    assert d.noise_kind == "none"
    assert d.methods[0].strong == 2.0


# Invariants


def test_declared_invariants_hold():
    energy = structure("lorentz").invariants["energy"]
    assert energy.holds
    assert energy.declared
    assert not energy.quadratic
    assert "H" not in structure("lorentz").invariants
    angular = structure("planar").invariants["angular_momentum"]
    assert angular.holds
    assert angular.quadratic
    assert not structure("planar").invariants["H"].holds


@pytest.mark.slow
def test_methods_in_the_plane():
    page = str(of("planar"))
    assert "kept exactly by midpoint, dirk(0.5), srkw1(0.5), srkw2" in page
    assert verdict(of("planar"), "midpoint").equations == ((4, False),)
    assert verdict(of("planar"), "dirk").equations == ((4, False), (4, False))
    assert verdict(of("planar"), "dirk").cost == "4 + 4 nonlinear"
    assert verdict(of("planar"), "dirk").unknowns == 8
    assert verdict(of("planar"), "heun").cost == "explicit"


def test_a_wrong_invariant_is_caught():
    planar = da.systems.planar()

    def tilted(q, p, params):
        return q[0] * p[1] - q[1] * p[0] + 1e-6 * q[0]

    d = diagnose(dataclasses.replace(planar, invariants={"tilted": tilted}), methods=[])
    found = d.invariants["tilted"]
    assert not found.holds
    assert 0 < found.largest < 1e-3
    assert "tilted was declared an invariant, and is none" in str(d)
    assert "FAILS" in str(d)


def test_an_invariant_of_the_drift_alone_is_caught():
    kubo = da.System(
        H=lambda q, p: (p[0] ** 2 + q[0] ** 2) / 2,
        h=[lambda q, p: 0.1 * q[0] ** 3],
        dim=1,
        invariants={"energy": lambda q, p: (p[0] ** 2 + q[0] ** 2) / 2},
    )
    found = diagnose(kubo, methods=[]).invariants["energy"]
    assert not found.holds
    assert found.along == "noise 1"
    q, p = found.where.q[0], found.where.p[0]
    assert found.largest == pytest.approx(abs(0.3 * q**2 * p), rel=1e-12)


def test_an_undeclared_energy_is_noticed():
    d = diagnose(da.systems.damped_kubo(nu=0.0), methods=[da.midpoint(), da.stormer_verlet()])
    assert d.invariants["H"].holds
    assert not d.invariants["H"].declared
    assert [v.keeps_quadratic for v in d.methods] == [True, False]
    for v in d.methods:
        q, p, _ = da.step(d.system, v.method, [1.0], [0.3], 0.4, [0.2])
        drift = abs((q[0] ** 2 + p[0] ** 2) / 2 - 0.545)
        assert bool(drift < 1e-14) is v.keeps_quadratic


# Methods


def test_orders_by_kind_of_noise():
    names = ("midpoint", "stormer_verlet", "dirk", "heun", "r2", "e1")
    assert {verdict(of("damped_kubo"), name).strong for name in names} == {1.0}
    assert {verdict(of("two_noise"), name).strong for name in names} == {0.5}
    for name in ("srkw1", "srkw2", "rs1", "rs2"):
        assert verdict(of("damped_kubo"), name).strong is None
    assert verdict(of("damped_kubo"), "srkw1").weak == 1.0
    assert verdict(of("damped_kubo"), "srkw2").weak == 2.0
    assert verdict(of("two_noise"), "rs1").weak == 2.0


def test_weak_order_two_where_the_drift_is_straight_along_the_noise():
    """Langevin-like systems: SRKw1 with λ = ½ gains an order there, with λ = 0 it does not."""
    assert structure("lenard_bernstein").straight_drift
    for name in ("van_der_pol", "langevin"):
        assert of(name).straight_drift
        for method in ("midpoint", "stormer_verlet", "srkw1"):
            assert verdict(of(name), method).weak == 2.0
    d = diagnose(da.systems.van_der_pol(), methods=[da.srkw1(0.5), da.srkw1(0.0)])
    assert [v.weak for v in d.methods] == [2.0, 1.0]


def test_weak_order_one_where_it_is_not():
    """Noise in the position of a quartic potential: the force is curved along it."""
    system = da.System(
        H=lambda q, p: p[0] ** 2 / 2 + q[0] ** 4 / 4, h=[lambda q, p: 0.5 * p[0]], dim=1
    )
    d = diagnose(system, methods=[da.midpoint(), da.heun()])
    assert d.noise_kind == "additive"
    assert not d.straight_drift
    assert [v.weak for v in d.methods] == [1.0, 2.0]


MIXED_PAIRS = da.System(
    H=lambda q, p: (p @ p + q @ q) / 2,
    F=lambda q, p: jnp.stack([-0.8 * p[0] * p[1], 0.8 * p[0] * p[1] - 0.5 * p[1]]),
    h=[lambda q, p: -0.7 * q[0], lambda q, p: -0.6 * q[1]],
    dim=2,
)
"""The force is linear along each noise and not along their sum: measured orders are 3/2."""


@pytest.mark.slow
def test_with_mixed_pairs_another_method_is_recommended():
    advice = diagnose(MIXED_PAIRS).recommendation
    assert advice and "additive_midpoint" not in [each.method for each in advice]


@pytest.mark.slow
def test_mixed_pairs_of_noises_count():
    methods = [da.additive_midpoint(), da.additive_dirk(), da.additive_gauss(), da.midpoint()]
    d = diagnose(MIXED_PAIRS, methods=methods)
    assert d.straight_drift and not d.straight_together
    assert [v.strong for v in d.methods] == [1.5, 1.5, 1.5, 1.0]
    assert d.methods[-1].weak == 2.0
    assert "and along their sums   no" in str(d)
    together = diagnose(da.systems.langevin(), methods=methods)
    assert together.straight_together
    assert "additive_midpoint" in [advice.method for advice in together.recommendation]
    assert [v.strong for v in together.methods] == [2.0, 2.0, 2.0, 1.0]


def test_a_method_that_cannot_take_the_noise_is_marked_with_the_reason():
    for name in ("two_noise", "langevin"):
        srkw2 = verdict(of(name), "srkw2")
        assert "condition 4" in srkw2.refused
        assert (srkw2.strong, srkw2.weak, srkw2.equations) == (None, None, ())
        assert "srkw2 takes at most 1 noise(s), the system has 2" in str(of(name))
        assert all(advice.method != "srkw2" for advice in of(name).recommendation)
    assert verdict(of("damped_kubo"), "srkw2").refused is None


def test_equations_to_solve():
    assert verdict(of("van_der_pol"), "stormer_verlet").equations == ((1, True),)
    assert verdict(of("van_der_pol"), "midpoint").equations == ((1, False),)
    assert verdict(of("van_der_pol"), "dirk").equations == ((1, False), (1, False))
    assert verdict(of("van_der_pol"), "dirk").cost == "1 + 1 nonlinear"
    assert verdict(of("van_der_pol"), "dirk").unknowns == 2
    assert verdict(of("van_der_pol"), "heun").cost == "explicit"
    assert verdict(of("langevin"), "midpoint").cost == "2 linear"


def test_a_tableau_of_ones_own_is_judged():
    mine = da.ExplicitTableau(
        A=[[0, 0], [1, 0]], alpha=[1, 0], B1=[[0, 0], [0, 0]], g1=[1, 0],
        B2=[[0, 0], [0, 0]], g2=[0, 0], name="euler",
    )  # fmt: skip
    d = diagnose(da.systems.pendulum(), methods=[mine])
    assert d.methods[0].strong is None
    assert not d.methods[0].lagrange_dalembert
    assert d.recommendation == ()
    assert "euler" in str(d)


# Recommendations


def advice(name):
    return {a.purpose: a.method for a in of(name).recommendation}


@pytest.mark.slow
def test_recommendations_for_other_systems():
    assert advice("lenard_bernstein")["paths, long runs"] == "stormer_verlet"
    assert advice("pendulum")["expectations"] == "srkw2"
    assert advice("planar")["paths, long runs"] == "midpoint"
    assert "quasi-symplectic" in str(of("lenard_bernstein"))
    assert "1 linear equation a step" in str(of("lenard_bernstein"))
    assert "da.exact_moments" not in str(of("pendulum"))


def test_recommendations():
    assert advice("damped_kubo") == {
        "paths, long runs": "midpoint",
        "large steps": "dirk",
        "expectations": "srkw2",
        "accurate paths": "bracket_gauss",
        "da.expect": "midpoint",
    }
    assert advice("van_der_pol")["paths, long runs"] == "stormer_verlet"
    assert advice("langevin") == {
        "paths, long runs": "midpoint",
        "expectations": "srkw1",
        "accurate paths": "additive_midpoint",
        "sampling": "baoab",
        "da.expect": "additive_midpoint",
    }
    assert "no faster than steps grow in number" in str(of("two_noise"))
    assert advice("two_noise")["expectations"] == "srkw1"
    assert advice("two_noise")["accurate paths"] == "bracket_midpoint"
    assert advice("two_noise")["accurate expectations"] == "ninomiya_victoir"
    assert "sampling" not in advice("van_der_pol")


def test_reasons_are_given():
    assert "quasi-symplectic" not in str(of("van_der_pol"))
    assert "Gaussian stationary law" in str(of("langevin"))
    assert "over short times also rs1 or rs2: weak order 2" in str(of("two_noise"))
    assert "da.exact_moments" in str(of("damped_kubo"))
    assert "da.exact_moments" not in str(of("van_der_pol"))


def test_without_noise():
    system = da.System(H=lambda q, p: p[0] ** 2 / 2 - jnp.cos(q[0]), dim=1, name="quiet pendulum")
    d = diagnose(system)
    assert d.noise_kind == "none"
    assert d.additive
    assert d.commutative
    assert verdict(d, "stormer_verlet").cost == "explicit"
    assert verdict(d, "midpoint").strong == 2.0
    assert [a.method for a in d.recommendation] == ["stormer_verlet"]
    assert "additive noise" not in str(d)


# Arguments


def test_the_answer_does_not_depend_on_the_global_precision():
    jax.config.update("jax_enable_x64", False)
    d = diagnose(da.systems.two_noise(), methods=[])
    assert d.lam_gap == of("two_noise").lam_gap
    assert isinstance(d, Diagnosis)


def test_other_seeds_look_elsewhere():
    system = da.systems.pendulum()
    assert not np.array_equal(Probe(system, None, 0).q, Probe(system, None, 1).q)
    assert np.array_equal(Probe(system, None, 0).q, Probe(system, None, 0).q)


def test_wrong_arguments():
    with pytest.raises(TypeError, match="Call the function to get the system"):
        diagnose(da.systems.pendulum)
    with pytest.raises(TypeError, match=r"points must be a pair \(q, p\)"):
        diagnose(da.systems.pendulum(), points=np.zeros((3, 2, 1)))
    with pytest.raises(ValueError, match=r"both of shape \(count, 1\), not \(3, 2\)"):
        diagnose(da.systems.pendulum(), points=(np.zeros((3, 2)), np.zeros((3, 2))))


def test_methods_for_some_systems_are_judged_where_they_are_recommended():
    found = of("van_der_pol")
    verdicts = {verdict.name: verdict for verdict in found.methods}
    names = [da.METHODS[name]().name for name in for_every_system()]
    assert list(verdicts)[: len(names)] == names
    assert verdicts["additive_midpoint"].strong == 2 and verdicts["additive_midpoint"].weak == 2
    assert "additive_midpoint" in [advice.method for advice in found.recommendation]
    assert "baoab" not in verdicts, "its friction is not linear"


@pytest.mark.slow
def test_cost_is_weighed_where_equations_are_dear():
    """Friction that couples nothing is solved entry by entry; an explicit splitting is cheaper."""
    large = da.diagnose(da.systems.langevin(lambda q: jnp.sum(q**4) / 4, dim=12))
    found = {v.name: v for v in large.methods}
    assert found["stormer_verlet"].coupled == 0 and found["midpoint"].coupled == 12
    assert found["stormer_verlet"].cost == "12 linear, one by one"
    advice = {a.purpose: a for a in large.recommendation}
    assert advice["expectations"].method == "baoab"
    assert "without equations" in advice["expectations"].reasons[0]
    other = advice["expectations"].reasons[1]
    assert "stormer_verlet, up to about twice as dear, 12 linear equations a step" in other
    assert "up to about twice as dear as baoab, which" in advice["paths, long runs"].reasons[-1]
    for purpose in ("accurate paths", "da.expect"):
        *_, solved, dear = ("", *advice[purpose].reasons)
        assert "12 nonlinear equations a step" in solved and dear.startswith("several times as")
    assert found["baoab"].keeps == "quasi-symplectic" and not found["baoab"].lagrange_dalembert
    coupled = da.diagnose(da.systems.fput(12))
    assert {v.name: v for v in coupled.methods}["midpoint"].coupled == 12
    small = da.diagnose(da.systems.langevin(lambda q: jnp.sum(q**4) / 4, dim=2))
    assert {a.purpose: a.method for a in small.recommendation}["expectations"] != "baoab"


def test_an_explanation_of_many_noises_fits_a_screen():
    n = 60
    noises = [lambda q, p, i=i: -(1.0 if i % 2 else q[0]) * q[i] for i in range(n)]
    system = da.System(H=lambda q, p: p @ p / 2 + q @ q / 2, F=lambda q, p: -p, h=noises, dim=n)
    text = da.explain(system, da.midpoint())
    assert max(map(len, text.splitlines())) <= 100 and len(text.splitlines()) < 20
    assert "h1–60_p = 0" in text and "h2,4,6,…,60_q constant" in text
    reason = "60 components are too many to write out"
    assert f"not vector code (LLVM) nor XLA on scalars: {reason}" in text
    assert "engine on this machine: arrays (XLA)" in text and "not XLA:" not in text
