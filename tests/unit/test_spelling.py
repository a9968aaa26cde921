"""Words of other codes are refused by saying what is written here."""

import inspect

import pytest

import dalembert as da
from dalembert.spelling import ARGUMENTS, EXAMPLES, NAMES, says_its_words

KUBO, START = da.systems.damped_kubo(), ([2.0], [0.0])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"steps": 10}, "no argument steps=: write t_end="),
        ({"n_steps": 10}, "write t_end="),
        ({"t1": 1.0}, "write t_end="),
        ({"dt0": 0.1}, "write dt="),
        ({"timestep": 0.1}, "write dt="),
        ({"n_paths": 3}, "paths="),
        ({"num_trajectories": 3}, "it takes system, method"),
        ({"saveat": [0.0]}, "write save_every="),
        ({"key": 0}, "write seed="),
        ({"solver": None}, "write method="),
        ({"y0": 1.0}, "write initial="),
        ({"save_evry": 1}, "did you mean save_every="),
        ({"t0": 0.0}, "time begins at 0"),
        ({"rtol": 1e-3}, "all steps have one size"),
    ],
)
def test_simulate(given, said):
    with pytest.raises(TypeError, match=said):
        da.simulate(KUBO, da.midpoint(), START, **given)


def test_other_functions():
    for call, said in (
        (lambda: da.System(hamiltonian=None, dim=1), "write H="),
        (lambda: da.System(drift=None), "drift and diffusion follow"),
        (lambda: da.systems.langevin(kT=1.0), "write temperature="),
        (lambda: da.systems.langevin(friction=1.0), "write gamma="),
        (lambda: da.systems.langevin(beta=2.0), r"write temperature=1/beta\."),
        (lambda: da.systems.langevin(damp=2.0), r"write gamma=1/damp\b"),
        (lambda: da.systems.damped_kubo(mass=1.0), "it takes beta, nu"),
        (lambda: da.systems.langevin(params={}), r"potential with parameters is that of a da\.Sys"),
        (lambda: da.systems.langevin(lambda q, k: k * q[0]), r"U\(q\) of positions alone .*'k'"),
        (lambda: da.strong_order(KUBO, [da.midpoint()], START, t_end=1.0), "One at a time"),
        (lambda: da.expect(tol=1e-3), "write tolerance="),
        (lambda: da.strong_order(nsteps=[1]), "did you mean steps="),
        (lambda: da.plasma.vlasov_poisson(10, 1.0, grid=3), "write field="),
        (lambda: da.plasma.Start(10, temperature=2.0), r"and velocities=da\.plasma\.Maxwellian"),
        (
            lambda: da.plasma.vlasov_poisson(10, collisions="dougherty"),
            r"such as da\.plasma\.Dougherty\(cells=32\), or a list of such, not 'dougherty'",
        ),
        (
            lambda: da.plasma.vlasov_poisson(10, collisions="Lenard-Bernstein"),
            r"such as da\.plasma\.LenardBernstein\(\), or a list of such, not",
        ),
        (
            lambda: da.simulate(KUBO, da.midpoint(), ([2.0],), dt=0.1, t_end=1.0),
            r"not tuple of length 1\. Momenta at rest are np\.zeros_like\(q0\)",
        ),
    ):
        with pytest.raises(TypeError, match=said):
            call()


def test_words_of_molecular_dynamics():
    for call, said in (
        (lambda: da.baoab(gamma=1.0), r"friction.* those of the system, da\.systems\.langevin"),
        (lambda: da.midpoint(dt=0.1), r"told to da\.simulate"),
        (lambda: da.dirk(lamb=0.5), r"did you mean lam="),
        (lambda: da.Axis(len, 0, 1, period=1.0), "did you mean periodic="),
        (lambda: da.Axis(len, range=(0, 1)), "write low="),
        (lambda: da.Histogram(len, bins=8), r"write x=, da\.Axis\(function, low, high"),
        (lambda: da.systems.lennard_jones(box=6.0), r"write density=N/side\*\*3"),
        (lambda: da.systems.langevin(constraints=len), r"dataclasses\.replace\(system, constr"),
    ):
        with pytest.raises(TypeError, match=said):
            call()
    for read, said in (
        (lambda: da.LangevinMiddleIntegrator, r"da\.baoab comes nearest"),
        (lambda: da.VerletIntegrator, r"da\.stormer_verlet comes nearest"),
        (lambda: da.minimize, r"none here; scipy\.optimize\.minimize"),
        (lambda: da.nose_hoover, r"none here; da\.baoab\(\) on da\.systems\.langevin"),
        (lambda: da.vlasov_poisson, r"da\.plasma\.vlasov_poisson comes nearest"),
        (lambda: da.plasma.Grid, r"da\.plasma\.Spline\(cells\) comes nearest"),
        (lambda: da.barostat, "none here: boxes keep their size"),
        (lambda: da.rdf, r"da\.Histogram\(da\.Axis\(distances, …\)\) comes nearest"),
        (lambda: da.systems.water, r"da\.systems\.triangles\(\) comes nearest"),
    ):
        with pytest.raises(AttributeError, match=said):
            read()
    with pytest.raises(KeyError, match="'triangles' comes nearest"):
        da.SYSTEMS["water"]


@pytest.mark.parametrize("name", da.METHODS)
def test_every_method_says_its_words(name):
    with pytest.raises(TypeError, match=f"{name} has no argument colour="):
        da.METHODS[name](colour="red")


def test_names():
    run = da.simulate(KUBO, da.midpoint(), START, dt=0.5, t_end=1.0, paths=2)
    for read, said in (
        (lambda: da.leapfrog, "da.stormer_verlet comes nearest"),
        (lambda: da.langevin, r"write da\.systems\.langevin\(\)"),
        (lambda: da.simulat, r"did you mean da\.simulate\?"),
        (lambda: da.systems.vanderpol, r"did you mean da\.systems\.van_der_pol\?"),
        (lambda: da.systems.overdamped, "large gamma"),
        (lambda: run.ts, "t comes nearest"),
        (lambda: run.ys, 'keep="all"'),
        (lambda: run.energy, r'mean\["energy"\]'),
        (lambda: run.mean.energy, r"\['energy'\]"),
    ):
        with pytest.raises(AttributeError, match=said):
            read()
    assert not hasattr(da, "qwertz") and not hasattr(da.systems, "qwertz")


def test_families_of_coefficients_say_what_they_lack():
    for make, said in (
        (lambda: da.MeanSquareTableau(), "needs a, a_bar, …, beta_hat as well, 10 in all"),
        (lambda: da.MeanSquareTableau([[0.5]]), "needs a_bar, a_hat, …, beta_hat as well, 9 in"),
        (lambda: da.ExplicitTableau(A=[[0.0]]), r"as da\.heun\(\)\.coefficients has them"),
        (lambda: da.WeakTableau(c=1), "WeakTableau has no argument c="),
    ):
        with pytest.raises(TypeError, match=said):
            make()
    for family, name in EXAMPLES.items():
        method = getattr(da, name)()
        assert type(method) is getattr(da, family)
        with pytest.raises(TypeError, match=rf"needs .*da\.{name}\(\)\.coefficients"):
            type(method)()


def test_rooms_and_tables_suggest_the_nearest_name():
    for read, said in (
        (lambda: da.plasma.vlasov_poison, r"did you mean da\.plasma\.vlasov_poisson\?"),
        (lambda: da.theory.symplectic_defct, r"did you mean da\.theory\.symplectic_defect\?"),
        (lambda: da.observables.kinetic_energy, r"did you mean da\.observables\.kinetic\?"),
        (lambda: da.methods.leapfrog, r"da\.stormer_verlet comes nearest"),
        (lambda: da.statistics.Histgram, r"did you mean da\.Histogram\?"),
    ):
        with pytest.raises(AttributeError, match=said):
            read()
    for table, name, said in (
        (da.METHODS, "midpiont", "no method 'midpiont': did you mean 'midpoint'"),
        (da.METHODS, "leapfrog", "'stormer_verlet' comes nearest"),
        (da.SYSTEMS, "vanderpol", "did you mean 'van_der_pol'"),
        (da.SYSTEMS, "kubo", "did you mean 'damped_kubo'"),
        (da.SYSTEMS, "qwertz", "no system 'qwertz': there are damped_kubo, van_der_pol"),
        (da.studies.STUDIES, "van_der_pol", "did you mean 'vanderpol'"),
        (da.METHODS, 3, "no method 3: there are"),
    ):
        with pytest.raises(KeyError, match=said):
            table[name]
        assert name not in table and table.get(name) is None


def test_what_is_marked_stays_what_it_was():
    @says_its_words
    def add(a: int, *, b: int = 2) -> int:
        """Add."""
        return a + b

    assert add(1) == 3 and add(a=1, b=4) == 5
    assert add.__doc__ == "Add." and list(inspect.signature(add).parameters) == ["a", "b"]
    assert "dt" in inspect.signature(da.simulate).parameters
    assert next(iter(inspect.signature(da.System).parameters)) == "H"


def test_the_tables_name_what_there_is():
    takers = [da.simulate, da.expect, da.System, da.strong_order, da.work_precision]
    takers += [*da.SYSTEMS.values(), da.plasma.vlasov_poisson, da.plasma.Start, da.plasma.Spline]
    takers += [da.plasma.Maxwellian, da.plasma.two_streams]
    takers += [da.Axis, da.Histogram]
    there = {name for taker in takers for name in inspect.signature(taker).parameters}
    assert set(ARGUMENTS) <= there
    for name in NAMES:
        path = name.partition("(")[0].split(".")
        if path[0] == "da":
            thing = da
            for part in path[1:]:
                thing = getattr(thing, part)
