"""Fits of waves: frequencies, growth rates and amplitudes of series, with error bars."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["WaveFit", "fit_growth", "fit_wave"]

CHANCE = 0.01
"""That noise alone, alike and independent at all times, looks like the wave of a fit."""

CLEAR = 5.0
"""Standard errors between an amplitude and none; of noise the best of many waves comes near it."""

SCATTERS = 4.0
"""Of the relative scatter about a fit: noise that is alike for long imitates a growth by one."""

COUNTS = 1e-7
"""Of the largest fitted value, in its errors, what the next one must have: a growth is that of two
values, and of less the numbers here have not the digits."""

MOST = 300.0
"""Of γ times the length of a series: beyond, squares of its values are no numbers."""

GAMMAS = 9
"""Growth rates among the first guesses, at each of as many frequencies as there are times."""


class WaveFit(NamedTuple):
    """A frequency and a growth rate (damping is negative), with their standard errors.

    Attributes:
        omega, gamma: ω and γ.
        omega_error, gamma_error: their standard errors.
        amplitude: of the wave at the first time.
        amplitude_error: its standard error, of the first time; of a wave that grows it is known
            badly there. With one series it is that of independent errors.
        note: what is doubtful about the fit, which is warned of; empty if nothing is.
    """

    omega: float
    gamma: float
    omega_error: float
    gamma_error: float
    amplitude: float
    amplitude_error: float
    note: str = ""


def fit_wave(t: Any, y: Any, error: Any = None) -> WaveFit:
    """Least squares fit of e^{γt} (A cos ωt + B sin ωt), from the best of many guesses.

    The error bars of one series count errors that are independent from time to time. The noise of
    particles is not: it oscillates like the wave itself, and their rates were seen to spread three
    times as far, so that these bars are lower bounds there. Give several independent series, such
    as runs with other seeds: their mean is fitted, and the bars are those of leaving out one after
    the other (the jackknife), whatever the noise is.

        waves = [da.simulate(…, seed=seed).mean["wave"][:, 0, 0] for seed in range(16)]
        fit = da.plasma.fit_wave(run.t, waves)

    A fit that noise alone could give comes with a warning.

    Args:
        t: times at equal distances, more than 8.
        y: values, one for each time; or several series of them, shape (paths, times).
        error: standard errors of y, or of its mean; if not given, all are alike, and as large as
            what the fit leaves. With several series they only say what counts for how much.
    """
    t, y, error, series, units = _checked(t, y, error, least=9)

    def model(gamma: float, omega: float) -> np.ndarray:
        grown = _grown(t, gamma)
        return np.stack([grown * np.cos(omega * t), grown * np.sin(omega * t)], axis=1)

    def slopes(at: np.ndarray, linear: np.ndarray, gamma: float) -> list[np.ndarray]:
        turned = np.stack([-at[:, 1], at[:, 0]], axis=1)
        return [(t - t[0]) * (at @ linear), t * (turned @ linear)]

    def left(guess: tuple[float, float]) -> float:
        return float(np.sum(np.square(_projected(model(*guess), y, error)[2])))

    # Up to the highest frequency that the times can tell, half a turn of the whole apart.
    omegas = np.pi / (t[-1] - t[0]) * np.arange(1, len(t))
    gammas = np.linspace(-8, 8, GAMMAS) / (t[-1] - t[0])
    start = min(((gamma, omega) for gamma in gammas for omega in omegas), key=left)

    def fit(y: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at, errors = _gauss_newton(model, slopes, start, y, error)
        # Where the wave is largest: of one that grows the noise hides the beginning.
        most = at[2] * np.exp(max(at[0], 0.0) * (t[-1] - t[0]))
        return np.append(at, most), np.append(errors, np.nan)

    found, errors = _of_all(fit, y, series, np.array(start))
    rest = _projected(model(*found[:2]), y, error)[2]
    most, spread = found[3] * units.y, errors[3] * units.y
    gap = "" if series is None or most > CLEAR * spread else f" ± {spread:.2g}"
    fitted, note = _as_record(found[:3], errors[:3], units), ""
    # With several series errors are weights, and their size says nothing.
    if gap or _chance(rest, y, error, error is not None and series is None) > CHANCE:
        note = (
            f"no wave is significant: noise alone could give the one of omega = {fitted.omega:.4g} "
            f"and the amplitude {most:.2g}{gap} that was fitted. Take more particles or paths, "
            "a larger amplitude, or times at which the wave is there."
        )
        warnings.warn(note, stacklevel=2)
    return fitted._replace(note=note)


def fit_growth(t: Any, y: Any, error: Any = None) -> WaveFit:
    """Least squares fit of A e^{γt} to values of one sign; arguments as for `fit_wave`.

    The error bars of one series are lower bounds for the noise of particles here, too. Where it is
    not clear that anything grows, or decays, the result comes with a warning and has it as its
    `note`: if γ is not several of its errors from 0, or if by γ values change no more, from the
    first time to the last, than they scatter about the fit anyway. Of noise that is alike for a
    tenth of the time one series in 25 passes all the same, and several series tell more.
    """
    t, y, error, series, units = _checked(t, y, error, least=3)
    if np.min(y) <= 0 <= np.max(y):
        raise ValueError(
            "y changes its sign, or is 0: fit_growth is for values of one sign, such as those of a "
            "part of the times, t[a:b] and y[a:b]; waves are for fit_wave."
        )
    guess = np.polyfit(t, np.log(np.abs(y)), 1)[:1]

    def model(gamma: float) -> np.ndarray:
        return _grown(t, gamma)[:, None]

    def slopes(at: np.ndarray, linear: np.ndarray, gamma: float) -> list[np.ndarray]:
        return [(t - t[0]) * (at @ linear)]

    def fit(y: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _gauss_newton(model, slopes, start, y, error)

    _check_growth(t, y, error, guess[0], units)
    (gamma, size), (gamma_error, size_error) = _of_all(fit, y, series, guess)
    _check_growth(t, y, error, gamma, units)
    rest = _projected(model(gamma), y, error)[2]
    fitted = (y if error is None else y / error) - rest
    scatter = np.linalg.norm(rest) / np.linalg.norm(fitted)
    record = _as_record([gamma, 0.0, size], [gamma_error, 0.0, size_error], units)
    change, note = abs(gamma) * (t[-1] - t[0]), ""
    if abs(gamma) <= CLEAR * gamma_error or change <= SCATTERS * scatter:
        first, last = units.t * t[0], units.t * t[-1]
        note = (
            f"nothing grows clearly: gamma = {record.gamma:.2g} ± {record.gamma_error:.1g} is a "
            f"change by a factor of {np.exp(np.sign(gamma) * change):.3g} from t = {first:g} to "
            f"{last:g}, and values scatter by {scatter:.0%} about it. Take times at which there is "
            "growth, or more particles or paths."
        )
        warnings.warn(note, stacklevel=2)
    return record._replace(note=note)


class _Units(NamedTuple):
    """What times and values are divided by: the powers of two above the length and the largest."""

    t: float
    y: float


def _grown(t: np.ndarray, gamma: float) -> np.ndarray:
    """e^{γ(t − t₀)}; guesses that would overflow are as bad with the last number before."""
    return np.exp(np.minimum(gamma * (t - t[0]), 2 * MOST))


def _check_growth(t: Any, y: Any, error: Any, gamma: float, units: _Units) -> None:
    """Refuse a growth that no two values tell."""
    change = gamma * (t[-1] - t[0])
    fitted = np.exp(gamma * (t - (t[-1] if gamma > 0 else t[0])))
    *_, second, first = np.sort(fitted if error is None else fitted / error)
    if abs(change) > MOST or second < COUNTS * first:
        raise ValueError(
            f"gamma is about {gamma / units.t:.3g}, a change by e^{change:.3g} in {len(t)} times: "
            "beside the largest value the others are nothing, and say nothing of a growth. Take "
            "times that are closer together, a part of them, or the slope of log(abs(y))."
        )


def _as_record(found: Any, errors: Any, units: _Units) -> WaveFit:
    """A fit from γ, ω and amplitude, and their errors."""
    scales = np.array([1 / units.t, 1 / units.t, units.y])
    (gamma, omega, size), (by_gamma, by_omega, by_size) = (
        (np.asarray(x) * scales).tolist() for x in (found, errors)
    )
    return WaveFit(omega, gamma, by_omega, by_gamma, size, by_size)


def _checked(t: Any, y: Any, error: Any, least: int) -> tuple[Any, Any, Any, Any, _Units]:
    """Times, values or their mean, errors, and the series that it is the mean of, in units."""
    y = np.asarray(y)
    if y.dtype.kind == "c":
        raise TypeError("y is complex, but must be real: fit y.real, or y.imag.")
    t, y = np.asarray(t, np.float64), np.asarray(y, np.float64)
    if y.size and not np.any(y):
        raise ValueError("y is 0 at all times: there is nothing to fit.")
    series = y if y.ndim == 2 and len(y) > 1 else None
    shape = y.shape
    if y.ndim == 2 and len(y):
        y = np.mean(y, axis=0)
    is_finite = np.all(np.isfinite(y)) and np.all(np.isfinite(t))
    if t.ndim != 1 or t.shape != y.shape or len(t) < least or not is_finite:
        raise ValueError(
            f"t and y have shapes {t.shape} and {shape}, but must be {least} or more times and "
            "as many finite values, or several series of them, shape (paths, times)."
        )
    steps = np.diff(t)
    if not np.allclose(steps, steps[0], rtol=1e-6, atol=0) or steps[0] <= 0:
        raise ValueError("t must be times at equal distances, one after the other.")
    _, powers = np.frexp([t[-1] - t[0], np.max(np.abs(y))])
    units = _Units(*np.ldexp(1.0, powers).tolist())
    t, y, series = t / units.t, y / units.y, None if series is None else series / units.y
    if error is None:
        return t, y, None, series, units
    error = np.broadcast_to(np.asarray(error, np.float64), y.shape) / units.y
    if not np.all(error > 0):
        raise ValueError("error must be positive standard errors.")
    return t, y, error, series, units


def _of_all(
    fit: Callable[[Any, Any], tuple[np.ndarray, np.ndarray]], y: Any, series: Any, start: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Parameters of the mean of several series, and their errors by leaving out each in turn."""
    found, errors = fit(y, start)
    if series is None:
        return found, errors
    n, inner = len(series), found[: len(start)]
    others = np.array([fit((n * y - one) / (n - 1), inner)[0] for one in series])
    return found, np.sqrt((n - 1) / n * np.sum((others - np.mean(others, axis=0)) ** 2, axis=0))


def _chance(rest: Any, y: Any, error: Any, is_known: bool) -> float:
    """How often the best of all guesses would leave as little as this of noise alone, at most.

    What two shapes leave of n independent normal numbers of unknown size has the law of Beta, and
    of a known size that of chi-square with two degrees of freedom.

    Args:
        rest: what is left, in units of the errors.
        y: values.
        error: of the values; None if all are alike.
        is_known: whether the errors have their true size, and are not weights alone.
    """
    n = len(y)
    values = y if error is None else y / error
    before, after = np.sum(values**2), np.sum(rest**2)
    one = np.exp((after - before) / 2) if is_known else (after / before) ** ((n - 2) / 2)
    return float(GAMMAS * (n - 1) * one)


def _projected(shapes: Any, y: Any, error: Any) -> tuple[Any, Any, Any]:
    """Shapes, their best amplitudes, and what is left of y, all in units of the errors."""
    weight = np.ones_like(y) if error is None else 1 / error
    shapes = shapes * weight[:, None]
    linear = np.linalg.lstsq(shapes, y * weight, rcond=None)[0]
    return shapes, linear, y * weight - shapes @ linear


def _gauss_newton(
    model: Any, slopes: Any, start: Any, y: Any, error: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Nonlinear parameters and the amplitude, and their standard errors.

    The parts of the amplitude are solved for at each set of parameters.
    """
    weight = np.ones_like(y) if error is None else 1 / error

    def left(at: Any) -> tuple[Any, Any, Any]:
        return _projected(model(*at), y, error)

    now = np.asarray(start, np.float64)
    for _ in range(100):
        shapes, linear, rest = left(now)
        columns = [s * weight for s in slopes(model(*now), linear, now[0])]
        # Columns as large as each other, whatever the growth: shapes are amplitudes of one wave.
        sizes = [*map(np.linalg.norm, columns), *[np.linalg.norm(shapes)] * shapes.shape[1]]
        sizes = np.where(np.array(sizes) > 0, sizes, 1.0)
        matrix = np.column_stack([*columns, shapes]) / sizes
        step = (np.linalg.lstsq(matrix, rest, rcond=None)[0] / sizes)[: len(now)]
        scale = 1.0
        # No step that makes the fit worse.
        while scale > 1e-6 and np.sum(left(now + scale * step)[2] ** 2) > np.sum(rest**2):
            scale /= 2
        now = now + scale * step
        if np.max(np.abs(step)) <= 1e-10 * (1 + np.max(np.abs(now))):
            break
    spread = 1.0 if error is not None else np.sum(rest**2) / max(len(y) - matrix.shape[1], 1)
    inverse = np.linalg.pinv(matrix, rcond=1e-10) / sizes[:, None]
    size = float(np.linalg.norm(linear))
    # The parts turn with ω; along the amplitude itself they do not.
    along = linear / (size or 1.0) @ inverse[len(now) :]
    errors = np.linalg.norm([*inverse[: len(now)], along], axis=1)
    return np.append(now, size), np.sqrt(spread) * errors
