"""Linear theory of plasma waves: roots of dispersion relations, response to a perturbed start.

Nothing here knows of particles; it is what runs are compared with. Units are ω_p = λ_D = 1: a wave
number k is in 1/λ_D, a frequency ω and a collision rate ν in ω_p. Waves are e^{i(kx − ωt)}, so that
Im ω > 0 grows.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from dalembert.plasma.roots import ACCURACY, Complex, best_of, least_damped, newton
from dalembert.plasma.velocities import AT_REST, Maxwellian, velocity_parts
from dalembert.spelling import says_its_words

__all__ = ["COLLISIONS", "dispersion_function", "response", "root", "weibel_root"]

COLLISIONS = {"lenard_bernstein": 1, "lenard_bernstein_momentum": 2, "dougherty": 3}
"""The first Hermite moment of the velocity that each operator damps: 1 damps momentum, 2 energy."""

Velocities = Maxwellian | Sequence[Maxwellian]


@says_its_words
def root(
    k: float,
    nu: float = 0.0,
    collisions: str | None = None,
    velocities: Velocities = AT_REST,
) -> complex:
    """Frequency and growth rate ω + iγ of the least damped, or fastest growing, electrostatic wave.

    Without collisions it is a root of 1 + Σ_s (n_s/(k²T_s)) (1 + ξ_s Z(ξ_s)) = 0,
    ξ_s = (ω/k − u_s)/√(2T_s), Z the plasma dispersion function. With them, an eigenvalue of

        da_n/dt = −ik√T (√(n+1) a_{n+1} + √n a_{n−1}) − (i/(k√T)) δ_{n1} a_0 − ν n [n ≥ n₀] a_n

    for the Hermite moments a_n of the perturbation. Of two waves that run either way, it is the
    one with ω ≥ 0.

    Args:
        k: wave number, above 0.
        nu: collision rate ν ≥ 0.
        collisions: None, "lenard_bernstein" (n₀ = 1), "lenard_bernstein_momentum" (n₀ = 2, the
            operator that conserves momentum) or "dougherty" (n₀ = 3, which conserves energy too).
        velocities: the unperturbed distribution; with collisions one Maxwellian at rest.
    """
    parts, first = _checked(k, nu, collisions, velocities)
    if first is None:
        finest = k * np.sqrt(min(part.temperature for part in parts))
        return least_damped(
            lambda w: _dielectric(w, k, parts), _starts(k, parts), f"k = {k:g}", finest=finest
        )
    where = f"k = {k:g} and nu = {nu:g}"
    thermal = k * np.sqrt(parts[0].temperature)
    matrix = _hermite_matrix(thermal, nu, first)
    candidates = np.asarray(1j * np.linalg.eigvals(matrix), np.complex128)
    relation = partial(_continued, k=thermal, nu=nu, first=first)
    if nu < FEW * thermal:
        # Waves are near those without collisions, and eigenvalues may be far from all of them.
        free = newton(lambda w: _dielectric(w, k, parts), _starts(k, parts))
        candidates = np.concatenate([candidates, np.unique(np.round(free, 9))])
        deepest = DEEPEST if thermal > SHORT else SHALLOW
        if thermal > SHORT:
            relation = partial(_integrated, k=thermal, nu=nu, first=first)
        candidates = _near(candidates, thermal, deepest)
        return best_of(_near(newton(relation, candidates), thermal, deepest), where)
    return best_of(newton(relation, candidates), where)


def _near(w: Complex, k: float, deepest: float) -> Complex:
    """Those frequencies that are neither damped too fast nor too high for what is computed."""
    return w[(w.imag > -deepest * k) & (np.abs(w.real) < 2 + 6 * k)]


@says_its_words
def weibel_root(k: float, u_x: float, u_y: float, c: float) -> complex:
    """ω + iγ of the least damped, or fastest growing, transverse wave of an anisotropic plasma.

    It is a root of ω² − k²c² − 1 + (u_y/u_x)² (1 + ξ Z(ξ)) = 0, ξ = ω/(√2 k u_x): waves along x,
    field along y, Weibel's instability if u_y is large enough.

    Args:
        k: wave number along x, in ω_p over the unit of velocity.
        u_x, u_y: standard deviations of both components of the velocity.
        c: speed of light, in the same unit of velocity.
    """
    for name, value in (("k", k), ("u_x", u_x), ("u_y", u_y), ("c", c)):
        _one(name, value)
        _require(name, value, value > 0, "above 0")

    def relation(w: Any) -> Any:
        xi = w / (np.sqrt(2) * k * u_x)
        value = w**2 - (k * c) ** 2 - 1 + (u_y / u_x) ** 2 * (1 + xi * dispersion_function(xi))
        # As many poles as zeros, all of them far below, so that it is 1 at infinity.
        return value / (w + 1j * scale) ** 2

    scale = np.hypot(k * c, 1) + k * max(u_x, u_y)
    real = np.linspace(0, 1.5 * scale, 31)
    imaginary = k * u_x * np.linspace(-2, 2, 9)
    starts = np.concatenate([np.add.outer(real, 1j * imaginary).ravel(), 1j * real[1:]])
    return least_damped(relation, starts, f"k = {k:g}", floor=-scale / 2)


@says_its_words
def response(
    k: float,
    t: Any,
    nu: float = 0.0,
    collisions: str | None = None,
    velocities: Velocities = AT_REST,
) -> Complex:
    """n_k(t)/n_k(0), and with it E_k(t)/E_k(0), after a start f₀(v) (1 + α cos kx) with small α.

    The Hermite moments of `root` start with a_n = δ_{n0}, and a_0(t) is the result: complex, but
    real where velocities are symmetric. There are as many moments as its digits need.

    Args:
        k: wave number, above 0.
        t: times ≥ 0, in any order, in an array of any shape.
        nu, collisions, velocities: as for `root`.
    """
    parts, first = _checked(k, nu, collisions, velocities)
    times = np.asarray(t, np.float64)
    if not np.all(np.isfinite(times) & (times >= 0)):
        raise ValueError("t must be finite times of at least 0.")
    order = np.unique(times)
    before = None
    for levels in 2 ** np.arange(6, 15):
        found = _moments(k, order, nu if first else 0.0, first or 1, parts, int(levels))
        if before is not None and np.all(
            np.abs(found - before) <= ACCURACY * np.maximum.accumulate(np.abs(found))
        ):
            return found[np.searchsorted(order, times)]
        before = found
    raise ValueError(
        f"the response at k = {k} until t = {order[-1]} has structure in velocity that is finer "
        "than 16,384 Hermite moments: ask for a shorter time."
    )


def dispersion_function(xi: Any) -> Any:
    """The plasma dispersion function Z(ξ) = i√π w(ξ), w = e^{−ξ²} erfc(−iξ), to some 1e−14.

    In the upper half-plane it is Weideman's rational series, below it the continuation.
    """
    xi = np.asarray(xi, np.complex128)
    is_below = xi.imag < 0
    above = np.where(is_below, -xi, xi)
    ratio = (SCALE + 1j * above) / (SCALE - 1j * above)
    w = 2 * np.polyval(COEFFICIENTS, ratio) / (SCALE - 1j * above) ** 2
    w += 1 / np.sqrt(np.pi) / (SCALE - 1j * above)
    w = np.where(is_below, 2 * np.exp(-(np.where(is_below, xi, 0) ** 2)) - w, w)
    return 1j * np.sqrt(np.pi) * w


TERMS = 64
SCALE = np.sqrt(TERMS / np.sqrt(2))


def _weideman() -> Any:
    """Coefficients of the series of `Weideman1994`, highest power first."""
    theta = np.arange(-2 * TERMS + 1, 2 * TERMS) * np.pi / (2 * TERMS)
    t = SCALE * np.tan(theta / 2)
    f = np.concatenate([[0.0], np.exp(-(t**2)) * (SCALE**2 + t**2)])
    return np.fft.fft(np.fft.fftshift(f)).real[TERMS:0:-1] / (4 * TERMS)


COEFFICIENTS = _weideman()


def _one(name: str, value: Any) -> None:
    """Refuse anything but one real number."""
    array = np.asarray(value)
    if array.shape != () or array.dtype.kind not in "fiu":
        raise TypeError(
            f"{name} is {value!r}, but must be one number; of several write a list, such as "
            f"[da.plasma.linear.root({name}) for {name} in …]."
        )


def _require(name: str, value: Any, holds: bool, need: str) -> None:
    if not (np.isfinite(value) and holds):
        raise ValueError(f"{name} is {value}, but must be {need}.")


def _checked(
    k: float, nu: float, collisions: str | None, velocities: Velocities
) -> tuple[tuple[Maxwellian, ...], int | None]:
    """The parts of the velocities, and the first moment that is damped; None without collisions."""
    for name, value in (("k", k), ("nu", nu)):
        _one(name, value)
    _require("k", k, k > 0, "above 0: a wave number in 1/λ_D")
    _require("nu", nu, nu >= 0, "at least 0: a collision rate in ω_p")
    if hasattr(collisions, "flow"):
        kind = type(collisions).__name__
        word = next((x for x in COLLISIONS if x.replace("_", "") == kind.lower()), None)
        if word == "lenard_bernstein" and getattr(collisions, "cells", None) is not None:
            word = "lenard_bernstein_momentum"
        said = f"write collisions={word!r}" if word else f"there is none for {kind}"
        raise TypeError(f"linear theory knows operators by name, {[*COLLISIONS]}: {said}.")
    is_known = isinstance(collisions, str) and collisions in COLLISIONS
    if collisions is not None and not is_known:
        raise ValueError(f"collisions are {collisions!r}, but must be None or in {[*COLLISIONS]}.")
    if collisions is None and nu > 0:
        raise ValueError(f"nu is {nu}: say which collisions, one of {[*COLLISIONS]}.")
    parts = velocity_parts(velocities)
    if collisions is None or nu == 0:
        return parts, None
    if len(parts) > 1 or any(part.drift != 0 for part in parts):
        raise ValueError(
            "collisions leave only a Maxwellian at rest as it is, so that there is no linear "
            f"theory of {velocities!r} with them: give one Maxwellian without drift."
        )
    return parts, COLLISIONS[collisions]


def _dielectric(w: Any, k: float, parts: Sequence[Maxwellian]) -> Any:
    value = np.ones_like(w)
    for part in parts:
        xi = (w / k - part.drift) / np.sqrt(2 * part.temperature)
        value = value + part.fraction / (k**2 * part.temperature) * _answer(xi)
    return value


def _answer(xi: Any) -> Any:
    """1 + ξ Z(ξ), of which far from 0 not all digits cancel: there by its asymptotic series."""
    is_far = np.abs(xi) > FAR
    square = 1 / (2 * np.where(is_far, xi, FAR) ** 2)
    series = np.zeros_like(square)
    for n in range(FAR_TERMS, 0, -1):
        series = -(2 * n - 1) * square * (1 - series)
    # Below the real axis the continuation has what particles at the velocity of the wave do.
    with np.errstate(all="ignore"):
        beyond = 2j * np.sqrt(np.pi) * xi * np.exp(-(xi**2))
    far = series + np.where(xi.imag < 0, beyond, 0)
    return np.where(is_far, far, 1 + xi * dispersion_function(np.where(is_far, 0, xi)))


FAR, FAR_TERMS = 10.0, 20
"""|ξ| from which so many terms of the series are right to rounding."""


def _starts(k: float, parts: Sequence[Maxwellian]) -> Complex:
    """A net over the frequencies of waves that are not damped at once."""
    reach = 2 + k * max(abs(part.drift) + 3 * np.sqrt(part.temperature) for part in parts)
    thermal = k * np.sqrt(max(part.temperature for part in parts))
    imaginary = np.concatenate([-thermal * np.linspace(0, 3, 10), np.linspace(0.02, 1, 10)])
    return np.add.outer(np.linspace(-reach, reach, 61), 1j * imaginary).ravel()


def _hermite_matrix(k: float, nu: float, first: int, levels: int = 96) -> Complex:
    """A of da/dt = A a for the Hermite moments, k in units of the thermal velocity."""
    n = np.arange(levels)
    matrix = np.diag(-nu * n * (n >= first)).astype(np.complex128)
    streaming = -1j * k * np.sqrt(n[1:])
    matrix += np.diag(streaming, 1) + np.diag(streaming, -1)
    matrix[1, 0] -= 1j / k
    return matrix


def _continued(w: Any, k: float, nu: float, first: int) -> Any:
    """det(A + iω) over that of its lower right part: a continued fraction, all moments in it."""

    def fraction(levels: int) -> Any:
        ratio = np.zeros_like(w)
        for n in range(levels, 1, -1):
            ratio = k**2 * n / (nu * n * (n >= first) - 1j * w + ratio)
        return -1j * w + (k**2 + 1) / (nu * (first == 1) - 1j * w + ratio)

    before = fraction(256)
    for levels in 2 ** np.arange(9, 18):
        now = fraction(int(levels))
        if np.all(~(np.abs(now - before) > 1e-13 * (1 + np.abs(now)))):
            return now
        before = now
    raise ValueError(
        f"nu = {nu:g} is too small for a continued fraction at k = {k:g}: leave collisions out."
    )


FEW, SHORT = 1 / 12, 0.25
"""Of ν in kv_th, and of k: where collisions are few, and waves so short that they are damped."""

DEEPEST, SHALLOW = 6.0, 0.1
"""Of the damping in kv_th, below which the integral over times would lose its digits, and below
which the continued fraction would with few collisions."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)


def _integrated(w: Any, k: float, nu: float, first: int) -> Any:
    """What `_continued` is, for few collisions, of which it would need too many moments.

    Without a field, and with Lenard and Bernstein's collisions, the density after a start at one
    point of time is exp(−(k²/ν²)(νt − 1 + e^{−νt})), and its transform G = 1/(−iω + r₁) has the
    continued fraction r₁ in it, of which the first parts are changed.
    """
    # e^{Im ω t} times it is below rounding at the end.
    end = (DEEPEST + np.sqrt(DEEPEST**2 + 80)) / k  # right without collisions
    while _decay(end, k, nu) < 40 + DEEPEST * k * end:
        end *= 1.2
    t = end / 2 * (NODES + 1)
    density = end / 2 * WEIGHTS * np.exp(-_decay(t, k, nu))
    G = np.exp(1j * np.multiply.outer(w, t)) @ density
    r1 = 1 / G + 1j * w
    r2 = k**2 / r1 - nu + 1j * w
    if first == 3:
        r3 = 2 * k**2 / r2 - 2 * nu + 1j * w
        r2 = 2 * k**2 / (-1j * w + r3)
    return -1j * w + (k**2 + 1) / (nu * (first == 1) - 1j * w + r2)


def _decay(t: Any, k: float, nu: float) -> Any:
    """(k²/ν²)(νt − 1 + e^{−νt}), also where νt is small."""
    x = nu * t
    series = (k * t) ** 2 / 2 * (1 - x / 3 + x**2 / 12 - x**3 / 60)
    return np.where(x < 1e-3, series, (k / nu) ** 2 * (x + np.expm1(-x)))


def _moments(
    k: float, times: Any, nu: float, first: int, parts: Sequence[Maxwellian], levels: int
) -> Complex:
    """Σ_s a_0 at sorted times, by Taylor series of the exponential of the Hermite matrix."""
    n = np.arange(levels, dtype=np.float64)
    fraction, drift, T = np.array([[s.fraction, s.drift, s.temperature] for s in parts]).T
    thermal = k * np.sqrt(T)
    diagonal = -1j * k * drift[:, None] - nu * n * (n >= first)
    streaming = -1j * thermal[:, None] * np.sqrt(n[1:])
    norm = np.max(np.abs(diagonal)) + np.max(thermal) * 2 * np.sqrt(levels) + 1 / np.min(thermal)

    def rate(a: Complex) -> Complex:
        change = diagonal * a
        change[:, :-1] += streaming * a[:, 1:]
        change[:, 1:] += streaming * a[:, :-1]
        change[:, 1] -= 1j / thermal * fraction * np.sum(a[:, 0])
        return change

    a = np.zeros((len(parts), levels), np.complex128)
    a[:, 0] = fraction
    found = []
    for span in np.diff(times, prepend=0.0):
        pieces = max(1, int(np.ceil(span * norm / 2)))
        for _ in range(pieces):
            # 26 terms: 2²⁶/26! is below rounding.
            term = a
            for order in range(1, 27):
                term = span / pieces / order * rate(term)
                a = a + term
        found.append(np.sum(a[:, 0]))
    return np.array(found)
