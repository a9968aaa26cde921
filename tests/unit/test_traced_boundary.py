"""What cannot be had inside jit, vmap and grad says so by its name, and what is traced there."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import pytest

import dalembert as da

KUBO = da.systems.damped_kubo()
START = ([2.0], [0.0])
METHOD = da.midpoint()

CALLS = {
    "da.expect": lambda s, q: da.expect(s, METHOD, (q, [0.0]), s.H, t_end=1.0, tolerance=0.1),
    "da.diagnose": lambda s, q: da.diagnose(s, points=([q], [[0.0]])),
    "da.strong_order": lambda s, q: da.strong_order(s, METHOD, (q, [0.0]), t_end=1.0),
    "da.weak_order": lambda s, q: da.weak_order(s, METHOD, (q, [0.0]), t_end=1.0),
    "da.work_precision": lambda s, q: da.work_precision(s, "midpoint", (q, [0.0]), t_end=1.0),
    "da.exact_moments": lambda s, q: da.exact_moments(s, METHOD, (q, [0.0]), dt=0.1, steps=3),
    "theory.solution_moments": lambda s, q: da.theory.solution_moments(
        s, (q, [0.0]), dt=0.1, steps=3
    ),
    "theory.stationary_covariance": lambda s, q: da.theory.stationary_covariance(s, METHOD, q),
    "theory.exact_stationary_covariance": lambda s, q: da.theory.exact_stationary_covariance(s),
    "theory.stability_limit": lambda s, q: da.theory.stability_limit(
        s, METHOD, stable=q, unstable=1.0
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_traced_parameters_are_refused_by_name(name):
    def value(nu):
        CALLS[name](KUBO.with_params(nu=nu, beta=0.5), [2.0])
        return nu

    for transform, given in ((jax.grad, 0.1), (jax.jit, 0.1), (jax.vmap, jnp.ones(2))):
        with pytest.raises(ValueError, match=f"{name} cannot be had inside jit, vmap or grad"):
            transform(value)(given)


@pytest.mark.parametrize("name", [x for x in CALLS if "exact_stationary" not in x])
def test_traced_states_and_numbers_are_refused_by_name(name):
    def value(q):
        CALLS[name](KUBO, q if "stab" in name or "cov" in name else jnp.stack([q]))
        return q

    match = f"{name} cannot be had inside jit, vmap or grad .traced here: [a-z]+.: call it outside"
    with pytest.raises(ValueError, match=match):
        jax.grad(value)(2.0)


@pytest.mark.parametrize(
    "option",
    [
        {"stop": lambda q, p, params: q[0]},
        {"checkpoint": "run.ckpt"},
        {"executor": ThreadPoolExecutor},
        {"workers": 1},
        {"engine": "XLA"},
        {"shard": True},
        {"on_failure": "raise"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_what_the_page_on_jax_lists_is_refused(option):
    def energy(nu):
        system = KUBO.with_params(nu=nu, beta=0.5)
        return da.simulate(system, METHOD, START, dt=0.5, t_end=1.0, **option).mean["energy"][-1]

    (name,) = option
    with pytest.raises(ValueError, match=f"{name} cannot be had inside jit, vmap or grad"):
        jax.grad(energy)(0.1)


@pytest.mark.parametrize("name", ["paths", "save_every"])
def test_traced_whole_numbers_are_refused_by_name(name):
    def run(number):
        return da.simulate(KUBO, METHOD, START, dt=0.5, t_end=1.0, **{name: number}).t

    with pytest.raises(TypeError, match=f"{name} cannot be traced"):
        jax.jit(run)(2)


def test_observables_that_are_true_or_false_are_told_how_to_be_numbers():
    with pytest.raises(TypeError, match=r"bool values; .* with \.astype\(float\) or jnp\.where"):
        da.simulate(
            KUBO, METHOD, START, dt=0.5, t_end=1.0, observe={"up": lambda q, p, params: q[0] > 1}
        )
    with pytest.raises(TypeError, match=r"It must change its sign .* q\[0\] > 1\.$") as error:
        da.simulate(KUBO, METHOD, START, dt=0.5, t_end=1.0, stop=lambda q, p, params: q[0] > 1)
    assert "astype" not in str(error.value)


def test_names_in_the_place_of_methods():
    with pytest.raises(TypeError, match=r"not 'midpoint'\. Write da\.METHODS\['midpoint'\]\(\)"):
        da.simulate(KUBO, "midpoint", START, dt=0.5, t_end=1.0)
    with pytest.raises(TypeError, match="midpoint"):
        da.expect(KUBO, "midpont", START, KUBO.H, t_end=1.0, tolerance=0.1)


@pytest.mark.parametrize(
    ("relative", "match"), [(0.01, r"write tolerance=0\.01, relative=True"), ("yes", "'yes'")]
)
def test_a_relative_tolerance_is_said_in_two_words(relative, match):
    with pytest.raises(TypeError, match=match):
        da.expect(KUBO, METHOD, START, KUBO.H, t_end=1.0, tolerance=0.1, relative=relative)


@pytest.mark.parametrize(
    ("confidence", "match"), [(95, "such as 0.95, not 95"), (1.0, "0.95"), ("95 %", "'95 %'")]
)
def test_levels_of_confidence_lie_between_zero_and_one(confidence, match):
    options = dict(t_end=1.0, confidence=confidence)
    with pytest.raises(ValueError, match=f"confidence must lie between 0 and 1.*{match}"):
        da.expect(KUBO, METHOD, START, KUBO.H, tolerance=0.1, **options)
    with pytest.raises(ValueError, match=f"confidence must lie between 0 and 1.*{match}"):
        da.strong_order(KUBO, METHOD, START, **options)
    fit = da.fitting.Fit.__new__(da.fitting.Fit)
    with pytest.raises(ValueError, match=f"confidence must lie between 0 and 1.*{match}"):
        fit.interval(confidence)
