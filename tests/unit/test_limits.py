"""Whether methods have the right limit, and who says so: `da.expect` and `da.simulate`."""

import warnings
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest

import dalembert as da
from dalembert.answers.orders import doubts_about_limit
from dalembert.methods.stages import DT, DW, along, along_noises, assemble
from dalembert.stepping.step import check_method
from dalembert.theory.limits import limit
from outside_method import Platen

EULER = da.ExplicitTableau(
    A=[[0]], alpha=[1], B1=[[0]], g1=[1], B2=[[0]], g2=[0], name="Euler–Maruyama"
)
KUBO = da.systems.damped_kubo().with_params(beta=0.5, nu=0.1)
ALONG_P = da.System(  # noise that moves momenta by functions of positions
    H=lambda q, p: (p @ p + q @ q) / 2, h=[lambda q, p: jnp.sin(q[0])], dim=1, name="along p"
)
FORCED = da.System(  # the same, and a force that depends on momenta
    H=lambda q, p: (p @ p + q @ q) / 2, f=[lambda q, p: 0.3 * p], dim=1, name="forced"
)
START = ([2.0], [0.0])


@dataclass(frozen=True)
class FirstNoise(da.Method):
    """Midpoint that reads the first noise alone."""

    name: str = "first noise"
    family = "forgetful"
    convergence = "mean-square"
    stages = 1

    def rows(self, noises):
        def fields(weight):
            return along(None, DT, [weight]) + along_noises(min(noises, 1), DW, [weight])

        return assemble([fields(0.5), fields(1.0)])


@pytest.mark.parametrize(
    ("system", "found"),
    [
        (KUBO, "wrong"),
        (KUBO.with_params(beta=0.0, nu=0.0), "right"),
        (da.systems.two_noise(), "wrong"),
        (FORCED, "wrong"),
        (ALONG_P, "right"),
        (da.systems.langevin(gamma=1.0), "right"),
    ],
    ids=lambda x: getattr(x, "name", x),
)
def test_euler_is_wrong_where_the_noise_moves_its_own_arguments(system, found):
    assert limit(system, EULER) == found


def test_parts_of_a_field_count_as_the_system_has_them():
    """A tableau whose forces alone miss the correction is right where no forces are noisy."""
    half, one = [[0.5]], [1.0]
    spoiled = da.MeanSquareTableau(*[half] * 5, [[0.0]], *[one] * 4, name="spoiled")
    assert limit(ALONG_P, spoiled) == limit(KUBO.with_params(nu=0.0), spoiled) == "right"
    assert limit(FORCED, spoiled) == "wrong"


def test_a_noise_that_rows_forget_is_named():
    assert limit(KUBO, FirstNoise()) == "right"
    with pytest.raises(ValueError, match=r"noise 1 has no field: write fields for every noise"):
        limit(da.systems.two_noise(), FirstNoise())


@pytest.mark.parametrize("system", [KUBO, da.systems.two_noise(), ALONG_P], ids=lambda s: s.name)
def test_no_method_of_the_package_is_wrong(system):
    taken = [m for m in (make() for make in da.METHODS.values()) if is_taken(system, m)]
    assert len(taken) > 7
    assert not [m.name for m in taken if limit(system, m) == "wrong"]


def is_taken(system, method):
    try:
        check_method(system, method)
    except ValueError:
        return False
    return True


def test_an_expectation_of_the_wrong_limit_is_refused_by_name():
    with pytest.raises(ValueError, match=r"Euler–Maruyama does not converge to the Stratonovich "):
        da.expect(KUBO, EULER, START, KUBO.H, t_end=2.0, tolerance=0.05)


def test_an_expectation_of_an_unknown_limit_says_so():
    @dataclass(frozen=True)
    class Sine(DW):
        name = "sine of dW"

        def value(self, dt, noise):
            return jnp.sin(noise.dW[self.noise])

    @dataclass(frozen=True)
    class Unknown(Platen):
        stages = 1

        def rows(self, noises):
            return assemble([[], along(None, DT, [1]) + along(0, Sine(0), [1])])

        def promises(self):
            return da.Promises()

    options = dict(t_end=1.0, tolerance=0.5, progress=False)
    found = da.expect(ALONG_P, Unknown(), START, ALONG_P.H, **options)
    assert any("its limit is not known to be the right one" in note for note in found.notes)
    assert not doubts_about_limit(ALONG_P, da.midpoint())


def test_a_run_of_a_method_of_the_wrong_limit_warns_once():
    options = dict(dt=0.5, t_end=1.0, progress=False)
    with pytest.warns(RuntimeWarning, match=r"Euler–Maruyama does not converge .*'damped_kubo'"):
        da.simulate(KUBO, EULER, START, **options)
    with pytest.warns(RuntimeWarning, match="does not converge") as said:
        jax.jit(
            lambda nu: da.simulate(KUBO.with_params(nu=nu, beta=0.5), EULER, START, **options).mean[
                "energy"
            ]
        )(0.1)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        da.simulate(ALONG_P, EULER, START, **options)
