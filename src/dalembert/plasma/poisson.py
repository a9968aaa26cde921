"""The Vlasov–Poisson system as N particles in their own field: a Hamiltonian system."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from dalembert.flow import Flow
from dalembert.plasma.fields import Field, Fourier, require_particles
from dalembert.precision import is_traced
from dalembert.spelling import says_its_words
from dalembert.system import System
from dalembert.systems._parameters import Params, Rule, Rules, parameters, require

__all__ = [
    "Collisions",
    "beside",
    "check_number",
    "check_sides",
    "columns",
    "effective",
    "is_count",
    "particle_rules",
    "product",
    "require_physical",
    "scalar",
    "vlasov_poisson",
]

ONE_MODE = Fourier(1)
OPERATORS = {
    "lenard": "LenardBernstein()",
    "bernstein": "LenardBernstein()",
    "lorentz": "Lorentz()",
    "coulomb": "CoulombPairs(cells=32)",
    "landau": "CoulombPairs(cells=32)",
}
"""What is written for the name of an operator."""


class Collisions(Protocol):
    """What an operator must have to be that of a plasma.

    One with `reads_temperature = False` has no parameter `temperature`.
    """

    def flow(self, shape: tuple[int, ...], axes: int, params: Params) -> Flow:
        """The flow for velocities of a shape, in a box of so many dimensions, or an error."""
        ...


@says_its_words
def vlasov_poisson(
    N: int = 2**14,
    length: Any = 4 * np.pi,
    field: Field = ONE_MODE,
    nu: Any = None,
    temperature: Any = None,
    charge: Any = -1.0,
    mass: Any = 1.0,
    weight: Any = 1.0,
    velocities: int | None = None,
    potential: Callable[[Any], Any] | None = None,
    collisions: Collisions | None = None,
) -> System:
    """Plasma of N charged particles in a periodic box, in their own electrostatic field.

        dx_i = v_i dt
        dv_i = ((q_i/m_i) E(x_i) − ν v_i) dt + √(2νT/m_i) dW_i

        H = Σ_i |p_i|²/(2M_i) + N [½ Σ_{k≠0} |ρ_k|²/k²] + Σ_i Q_i φ(x_i)
        F = −ν p,   f_i = w_i √(2νm_iT) dW_i,   p_i = M_i v_i,   M_i = w_i m_i,   Q_i = w_i q_i

    E is the field of the charge density ρ = (V/N) Σ_i Q_i δ(x − x_i), its energy per volume in the
    brackets as the field says, φ a given potential. Units are ω_p = λ_D = 1, those of electrons
    with density, mass and temperature 1: time in 1/ω_p, x in λ_D, velocities in the thermal one.
    H is N times the energy per volume; p is the velocity where mass and weight are 1.

    With ν > 0 every particle has friction and a noise for each component: the operator of Lenard
    and Bernstein, ∂f/∂t = ν ∂_v·(v f + (T/m) ∂_v f). It conserves particles; momentum and energy
    relax to those of a Maxwellian at rest with temperature T. Other `collisions` are flows, which
    act on velocities before and after every step of a method, and keep what they say.

    q and p have shape (N,), or (N, d) for more than one component; positions are not wrapped.
    Several species are arrays of shape (N,) for charge, mass, weight and temperature.

    Args:
        N: number of particles.
        length: of the box in λ_D, L or a pair (L_x, L_y): as many as the field has axes.
        field: `da.plasma.Fourier(modes)` or `da.plasma.Spline(cells)`.
        nu: collision rate ν ≥ 0 in ω_p. None, or 0 without `collisions`, leaves the Hamiltonian
            system, without noise; with `collisions` it must be given.
        temperature: T ≥ 0, that Lenard and Bernstein's collisions lead to, 1 if not given. Without
            them it is none of the parameters, and is refused: particles have the temperature that
            they begin with.
        charge: of a particle; electrons have −1.
        mass: of a particle; electrons have 1.
        weight: how many particles of density 1 each stands for, relative to N: all weights of a
            species add up to N times its density.
        velocities: components of the velocity, at least as many as the box has dimensions, which is
            the default. Beyond those, positions are there but nothing depends on them.
        potential: φ of positions, one value per particle: a function q → (N,) of the whole array,
            with the period of the box.
        collisions: what ν is the rate of: None for forces inside the method, or a flow:
            `da.plasma.LenardBernstein`, `Dougherty`, `Lorentz` or `CoulombPairs`.

    Invariants: the energy H for ν = 0, and the total momentum with a `Fourier` field and no
    potential; with collisions, what they conserve of it.
    Exact results: waves of small amplitude, `da.plasma.linear`.
    Source: `BirdsallLangdon1991`; `LenardBernstein1958`.
    """
    if isinstance(field, type) or not isinstance(getattr(field, "axes", None), int):
        raise TypeError(
            "field must be one such as da.plasma.Fourier(1) for one mode, or da.plasma.Spline(32) "
            f"for a grid of 32 cells, not {field!r}."
        )
    sides = tuple(length) if isinstance(length, list | tuple) else (length,)
    if len(sides) != field.axes:
        raise ValueError(
            f"length is {length!r}, but {field} is a field in {field.axes} dimension(s): give as "
            "many lengths as it has axes."
        )
    components = field.axes if velocities is None else velocities
    if not is_count(components, field.axes, 3):
        raise ValueError(
            f"velocities is {velocities!r}, but must be at least the {field.axes} of the box and "
            "at most 3."
        )
    require_particles(N)
    _check_is_read(nu, temperature, collisions)
    nu = 0.0 if nu is None else nu
    temperature = 1.0 if temperature is None else temperature
    values = {"charge": charge, "mass": mass, "weight": weight}
    check = Rules(
        {
            **particle_rules(N),
            "nu": Rule("at least 0", "it is a collision rate", _is_finite_or_zero),
            "temperature": Rule(
                "at least 0", "the noise is √(2νTm)", _is_finite_or_zero, (N,), True
            ),
        },
        partial(check_sides, field.axes),
    )
    check({"length": sides, **values, "nu": nu, "temperature": temperature})
    values, thermal = parameters(**values), parameters(nu=nu, temperature=temperature)
    shape = (N,) if components == 1 else (N, components)
    params = {"length": tuple(parameters(length=side)["length"] for side in sides), **values}
    if potential is not None:
        _check_potential(potential, shape)
    H = _hamiltonian(field, potential)
    options: dict[str, Any] = {"H": H, "dim": shape, "name": "vlasov_poisson", "check": check}
    invariants = {"energy": H}
    if isinstance(field, Fourier) and potential is None:
        invariants |= {f"momentum_{a}": _momentum(i) for i, a in enumerate("xyz"[:components])}
    if collisions is not None:
        if not _reads_temperature(collisions):
            del thermal["temperature"]
        return _with_flow(collisions, field.axes, options, {**params, **thermal}, invariants)
    if not is_traced(nu) and np.all(np.asarray(nu) == 0):
        return System(**options, params=params, invariants=invariants)
    return System(**options, F=_friction, f=_kicks, noises=shape, params={**params, **thermal})


def _with_flow(
    collisions: Collisions, axes: int, options: Any, params: Any, invariants: Any
) -> System:
    """A plasma whose collisions are a flow; of its invariants those are left that both keep."""
    flow = collisions.flow(options["dim"], axes, params)
    kept = {name.replace("kinetic ", "") for name in flow.keeps}
    invariants = {name: fun for name, fun in invariants.items() if name.split("_")[0] in kept}
    return System(**options, params=params, invariants=invariants, flow=flow)


def _check_is_read(nu: Any, temperature: Any, collisions: Any) -> None:
    """Refuse what is no operator, an operator without a rate, and a temperature nobody reads."""
    if collisions is not None and (
        isinstance(collisions, type) or not callable(getattr(collisions, "flow", None))
    ):
        example = "Dougherty(cells=32)"
        if isinstance(collisions, str):
            word = collisions.lower().replace("_", "").replace("-", "").replace(" ", "")
            example = next((write for name, write in OPERATORS.items() if name in word), example)
        raise TypeError(
            f"collisions must be None or an operator such as da.plasma.{example}, not "
            f"{collisions!r}."
        )
    if collisions is not None and nu is None:
        raise ValueError(
            f"collisions={collisions!r} act at the rate nu=: give one, such as nu=0.1."
        )
    if temperature is None or (_reads_temperature(collisions) and nu is not None):
        return
    why = "without nu= there are no collisions" if nu is None else f"{collisions!r} reads none"
    raise ValueError(
        f"temperature is {temperature}, which collisions are to lead to, but {why}: leave it out. "
        "The temperature that particles begin with is that of their start, da.plasma.Start(N, "
        "length, velocities=da.plasma.Maxwellian(temperature=T))."
    )


def _reads_temperature(collisions: Any) -> bool:
    """Whether collisions lead to a temperature that is given; others say that they do not."""
    return getattr(collisions, "reads_temperature", True)


def _is_finite_or_zero(value: Any) -> Any:
    return (value >= 0) & (value < np.inf)


def _is_physical(value: Any) -> Any:
    return (value > 0) & (value < np.inf)


PHYSICAL = "it is a length, a speed, a mass or a number"


def particle_rules(N: int) -> dict[str, Rule]:
    """What the parameters of N particles in a box must be: one number or one for each particle."""
    return {
        "length": Rule("above 0", PHYSICAL, _is_physical),
        "mass": Rule("above 0", PHYSICAL, _is_physical, (N,), True),
        "weight": Rule("above 0", PHYSICAL, _is_physical, (N,), True),
        "charge": Rule("finite", "it is a charge", np.isfinite, (N,), True),
    }


def check_sides(axes: int, params: Params) -> None:
    """Refuse a length of a box that is no tuple with as many sides as it has dimensions."""
    length = params["length"]
    if not isinstance(length, tuple | list) or len(length) != axes:
        sides = ", ".join(["12.0"] * axes) + "," * (axes == 1)
        raise ValueError(
            f"length is {length!r}, but must be a tuple of {axes} side(s) here, such as "
            f"system.with_params(length=({sides}))."
        )


def require_physical(**values: Any) -> None:
    """Refuse charges that are not finite, and all else that is not above 0 and finite."""
    for name, value in values.items():
        rule = particle_rules(1)[name]
        holds: Any = rule.holds
        require(name, value, rule.need, holds, rule.advice)


def is_count(value: Any, least: float, most: float) -> bool:
    """Whether something is a whole number between two others."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_whole and bool(least <= value <= most)


def _check_potential(potential: Any, shape: tuple[int, ...]) -> None:
    if not callable(potential):
        raise TypeError(f"potential must be a function of positions, not {potential!r}.")
    found = jax.eval_shape(potential, jax.ShapeDtypeStruct(shape, np.float64))
    if np.shape(found) != shape[:1]:
        raise ValueError(
            f"potential returns shape {np.shape(found)}, but must have one value per particle: "
            f"{shape[:1]} for positions of shape {shape}."
        )


def columns(q: Any, axes: int) -> tuple[Any, ...]:
    """Positions, or momenta, along the first axes, shape (N,) each."""
    return (q,) if q.ndim == 1 else tuple(q[:, a] for a in range(axes))


def product(q: Any, params: Params, *names: str) -> Any:
    """The product of parameters that are numbers or arrays (N,): a number if all of them are."""
    value = jnp.ones((), q.dtype)
    for name in names:
        value = value * jnp.asarray(params[name], q.dtype)
    return value


def effective(q: Any, params: Params, *names: str) -> Any:
    """The product of parameters that are numbers or arrays (N,), shape (N,)."""
    return jnp.broadcast_to(product(q, params, *names), q.shape[:1])


def scalar(q: Any, params: Params, name: str) -> Any:
    """A parameter that is one number."""
    check_number(name, params[name])
    return jnp.asarray(params[name], q.dtype)


def check_number(name: str, value: Any) -> None:
    """Refuse an array where one number is needed."""
    if jnp.shape(value) != ():
        raise ValueError(f"{name} must be one number, not an array of shape {jnp.shape(value)}.")


def beside(value: Any, q: Any) -> Any:
    """One number, or one per particle, as what goes with all components of q."""
    return value if q.ndim == 1 or not value.ndim else value[:, None]


def _hamiltonian(field: Field, potential: Callable[[Any], Any] | None) -> Callable[..., Any]:
    def H(q: Any, p: Any, params: Params) -> Any:
        N, Q = q.shape[0], product(q, params, "weight", "charge")
        M = product(q, params, "weight", "mass")
        x, sides = columns(q, field.axes), params["length"]
        value = jnp.sum(p**2 / (2 * beside(M, q))) + N * jnp.sum(field.energies(x, Q, sides))
        return value if potential is None else value + jnp.sum(Q * potential(q))

    return H


def _momentum(axis: int) -> Callable[..., Any]:
    return lambda q, p, params: jnp.sum(p if p.ndim == 1 else p[:, axis])


def _friction(q: Any, p: Any, params: Params) -> Any:
    return -scalar(q, params, "nu") * p


def _kicks(q: Any, p: Any, w: Any, params: Params) -> Any:
    variance = 2 * scalar(q, params, "nu") * product(q, params, "mass", "temperature")
    return beside(product(q, params, "weight") * jnp.sqrt(variance), q) * w
