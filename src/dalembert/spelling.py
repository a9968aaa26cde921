"""Words of other codes, and what is written here instead of them.

Who comes from another code types its words first. Functions that are marked by `says_its_words`
refuse arguments that they do not have by naming those that they have.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar

__all__ = ["ByName", "instead_of", "is_not_there", "says_its_words", "written"]

Thing = TypeVar("Thing")
Marked = TypeVar("Marked", bound=Callable[..., Any])

ARGUMENTS: dict[str, tuple[str, str]] = {
    "t_end": (
        "the final time: the number of steps times dt",
        "steps nsteps num_steps number_of_steps nt t1 tmax t_max tf t_final tspan t_span time T "
        "end t_stop duration total_time maxiter",
    ),
    "dt": ("the size of all steps", "dt0 timestep time_step step_size stepsize delta_t step h"),
    "paths": (
        "the number of independent paths",
        "n_paths num_paths number_of_paths trajectories n_trajectories n_traj samples n_samples "
        "num_samples ensemble ensemble_size batch batch_size replicas n_replicas realizations M",
    ),
    "seed": ("a whole number", "key rng prng prng_key random_state random_seed random_key"),
    "save_every": (
        "a number of steps",
        "saveat save_at t_eval ts save_interval output_every output_interval report_interval "
        "reporting_interval stride thin thinning every nsave save_steps dense_output",
    ),
    "keep": (
        '"final" or "all"',
        "save_paths return_paths store keep_paths return_trajectory return_trajectories "
        "save_trajectory save_trajectories trajectory return_states save_states",
    ),
    "initial": (
        "the pair (q0, p0)",
        "y0 x0 z0 u0 q0 p0 q p x y state initial_state initial_condition initial_conditions init "
        "start ics positions velocities",
    ),
    "method": (
        "such as da.midpoint()",
        "solver integrator scheme alg algorithm stepper propagator",
    ),
    "methods": ("such as [da.midpoint()]", "method solvers integrators schemes"),
    "system": ("a da.System", "problem prob model sde terms equation topology"),
    "observe": (
        "functions of (q, p) by name",
        "observable observables observers reporter reporters functions outputs diagnostics "
        "quantities callback callbacks",
    ),
    "stop": (
        "a function that changes its sign where a path ends",
        "event events terminate stop_when until",
    ),
    "workers": ("a whole number", "n_jobs num_workers n_workers threads n_threads cores nproc"),
    "progress": ("True or False", "progress_bar progressbar verbose progress_meter quiet"),
    "dtype": ("np.float64 or np.float32", "precision type"),
    "histograms": ("da.Histogram by name", "histogram hist bins"),
    "tolerance": (
        "the standard error or half-width that is asked for",
        "tol atol rtol eps epsilon accuracy error target",
    ),
    "steps": ("numbers of steps", "nsteps n_steps num_steps"),
    "H": ("a function of (q, p)", "hamiltonian energy"),
    "F": ("a function of (q, p)", "force forces friction damping drag dissipation"),
    "h": (
        "a list, one function of (q, p) per noise",
        "noise noise_hamiltonian noise_hamiltonians sigma",
    ),
    "f": (
        "a list, one function of (q, p) per noise",
        "noise_force noise_forces",
    ),
    "dim": (
        "the number of degrees of freedom, or the shape of q",
        "n ndim n_dim d dimension dimensions shape n_dof dof num_particles n_particles particles "
        "size",
    ),
    "params": ("numbers or arrays by name", "parameters args constants p0"),
    "invariants": ("functions by name", "conserved first_integrals conserved_quantities"),
    "constraints": ("a function g(q), zero where it holds", "constraint g bonds rigid"),
    "noises": ("the number of Wiener processes", "n_noises num_noises noise_dim m"),
    "temperature": (
        "an energy, in which Boltzmann's constant is 1",
        "kT kbt T temp kB_T",
    ),
    "gamma": (
        "a rate, 1/time",
        "friction friction_coefficient friction_coeff collision_rate damping nu drag",
    ),
    "mass": ("a number, or an array that stretches to the shape of q", "masses m"),
    "potential": ("a function U(q)", "U V energy energy_fn potential_energy force forces"),
    "bins": ("a whole number", "nbins n_bins num_bins number_of_bins"),
    "low": ("the lower end, and high= the upper one", "range limits bounds min lower vmin"),
    "x": (
        "da.Axis(function, low, high, bins=100)",
        "of fun function bins range axis axes nbins n_bins low high edges",
    ),
    "N": ("the number of particles", "n n_particles num_particles particles dim size"),
    "field": (
        "such as da.plasma.Fourier(modes) or da.plasma.Spline(cells)",
        "grid cells n_cells nx ncells solver mesh shape modes",
    ),
    "length": ("the side of the periodic box", "L box box_length size"),
    "amplitude": ("α of the density 1 + α cos kx", "alpha epsilon eps perturbation A a delta"),
    "cells": ("a whole number of cells of the box", "n_cells ncells nx n grid modes"),
    "degree": ("1 for linear or 2 for quadratic splines", "order shape shape_function kind"),
    "drift": ("the mean velocity", "u v0 vd speed velocity mean drift_velocity loc"),
    "fraction": ("the share of the particles", "n density share weight"),
    "speed": ("each stream has velocity ±speed", "u v0 vd drift velocity drift_velocity"),
}
"""What an argument is, and what it is called elsewhere."""

THERMAL = ("vth", "v_th", "vt", "v_t", "vthermal", "thermal_velocity", "thermal_speed")

CONVERTED = {
    "temperature": {
        "beta": "1/beta",
        "inverse_temperature": "1/inverse_temperature",
        "temperature_K": "k_B*temperature_K in the units of U",
        **dict.fromkeys(THERMAL, "vth**2 (times the mass, where it is an energy)"),
    },
    "cells": dict.fromkeys(("dx", "h", "cell_size"), "length/dx, as a whole number"),
    "mode": dict.fromkeys(("k", "wave_number", "wavenumber", "kx"), "1 and length=2*np.pi/k"),
    "velocities": dict.fromkeys(THERMAL, "da.plasma.Maxwellian(temperature=vth**2)"),
    "gamma": {
        "damp": "1/damp, as damp of LAMMPS is a time",
        "tau": "1/tau",
        "tau_t": "1/tau_t",
        "relaxation_time": "1/relaxation_time",
    },
    "density": {
        **dict.fromkeys(("box", "box_size", "box_length", "side", "length", "L"), "N/side**3"),
        "volume": "N/volume",
    },
    "periodic": {"period": "True, with low and high one period apart"},
    "transverse": dict.fromkeys(
        ("temperature", "T", "kT", "temp"),
        "T of the components other than x, and velocities=da.plasma.Maxwellian(temperature=T)",
    ),
}
"""Words of others that give an argument after a computation."""

EXAMPLES = {
    "MeanSquareTableau": "midpoint",
    "WeakTableau": "srkw1",
    "ExplicitTableau": "heun",
    "ExplicitWeakTableau": "rs1",
    "AdditiveTableau": "additive_midpoint",
    "BracketTableau": "bracket_gauss",
}
"""Methods whose coefficients show those of a family."""

NEITHER = {
    "time begins at 0": "t0 t_start t_begin",
    "a system is given by energies and forces H, F, h, f; drift and diffusion follow": "drift "
    "diffusion f_drift g_diffusion drift_fn diffusion_fn",
    "all steps have one size, dt": "rtol atol adaptive stepsize_controller adaptive_step max_steps "
    "dt_min dt_max",
    "parameters are those of the system, system.with_params(…)": "args params parameters",
    "JAX decides about devices, as by JAX_PLATFORMS=cpu": "device devices backend platform gpu",
}
"""What is said of arguments of others that have no counterpart."""

BY_ROOM = {
    "methods": {
        "friction, temperature and masses are those of the system, da.systems.langevin(potential, "
        "dim, gamma=…, temperature=…, mass=…)": "gamma friction friction_coeff collision_rate "
        "damping temperature temp kT T mass masses",
        "the size of steps is told to da.simulate(system, method, …, dt=…)": "dt dt0 timestep "
        "time_step step_size stepsize h",
    },
    "systems": {
        "each parameter is an argument of its own; a potential with parameters is that of a "
        "da.System(H=…, params=…)": "params parameters args",
        "bind the positions of any system by dataclasses.replace(system, constraints=g) with "
        "g(q, params) -> (c,), or by da.System(…, constraints=g)": "constraints constraint rigid "
        "shake bonds",
    },
}
"""The same, of what is called in one room of the package."""

NOT_HERE = {
    "there is none here; scipy.optimize.minimize finds a minimum of a potential to start from": (
        "minimize minimise minimizer energy_minimization minimize_energy local_energy_minimizer "
        "fire fire_descent gradient_descent"
    ),
    "there is none here: boxes keep their size": (
        "npt nph barostat monte_carlo_barostat npt_nose_hoover"
    ),
    "there is none here; da.baoab() on da.systems.langevin(…) keeps a temperature": (
        "nose_hoover nose_hoover_chain nvt_nose_hoover berendsen andersen andersen_thermostat csvr "
        "bussi thermostat nvt"
    ),
    "there is none here; between runs a system changes by system.with_params(…)": (
        "replica_exchange parallel_tempering umbrella umbrella_sampling metadynamics annealing"
    ),
}
"""What is said of functions of others that have no counterpart."""

NAMES = {
    "da.stormer_verlet": "leapfrog verlet velocity_verlet position_verlet symplectic_euler "
    "verlet_integrator nve",
    "da.midpoint": "implicit_midpoint boris gauss rk4 runge_kutta",
    "da.heun": "euler_maruyama euler_heun euler milstein em srk",
    "da.baoab": "langevin_middle langevin_middle_integrator nvt_langevin langevin_integrator gjf",
    "da.rattle": "shake lincs",
    "da.systems.langevin(potential, …)": "harmonic_oscillator harmonic double_well oscillator",
    "da.systems.langevin(potential, …) with a large gamma and da.baoab()": "brownian_dynamics "
    "overdamped overdamped_langevin brownian",
    "da.systems.triangles()": "water tip3p spce rigid_water",
    "da.simulate": "solve run integrate sdeint diffeqsolve odeint sample",
    "da.observables": "reporters",
    "da.plasma.vlasov_poisson": "vlasov_poisson vlasov pic particle_in_cell species landau_damping",
    "da.plasma.Spline(cells)": "grid mesh deposit deposition",
    "da.Histogram": "hist",
    "da.Histogram(da.Axis(distances, …))": "rdf radial_distribution radial_distribution_function "
    "pair_correlation",
    "da.simulate(…, observe={…})": "msd mean_squared_displacement mean_square_displacement",
    "da.System": "hamiltonian problem sde model",
    "t": "ts time times",
    'mean["energy"], by the name of what was observed': "energy observables means averages avg",
    'stderr["energy"], by the name of what was observed': "std sem error errors",
    'variance["energy"], by the name of what was observed': "var",
    'q and p, of runs with keep="final" or keep="all"': "ys y x states trajectory trajectories "
    "paths positions momenta velocities v samples u",
    "provenance": "info stats meta metadata",
}
"""What things are called elsewhere."""


def _plain(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")


def instead_of(word: str, known: Iterable[str], prefix: str = "") -> str:
    """What may have been meant by a name that is not there, as the end of a sentence.

    Args:
        word: the name.
        known: those that are there.
        prefix: what is written before them, such as `da.`.
    """
    known = [name for name in known if not name.startswith("_")]
    ours = _elsewhere(word)
    for said, words in NOT_HERE.items():
        if _plain(word) in map(_plain, words.split()):
            return f": {said}."
    is_of = (ours.partition("[")[0].partition(" ")[0] in known) or ours.startswith(prefix or "-")
    if ours and is_of:
        return f": {ours} comes nearest."
    near = _nearest(word, known)
    return f": did you mean {prefix}{near}?" if near else "."


def _elsewhere(word: str) -> str:
    """Ours, of a word of other codes."""
    names = {_plain(w): ours for ours, words in NAMES.items() for w in words.split()}
    return names.get(_plain(word), "")


def _nearest(word: str, known: Iterable[str], cutoff: float = 0.7) -> str:
    names = {_plain(name): name for name in known}
    found = get_close_matches(_plain(word), names, n=1, cutoff=cutoff)
    return names[found[0]] if found else ""


class ByName(dict[str, Thing]):
    """Things by name; a name that is not there is refused with the nearest one that is."""

    def __init__(self, kind: str, things: Mapping[str, Thing]) -> None:
        super().__init__(things)
        self.kind = kind

    def __missing__(self, name: str) -> Thing:
        raise KeyError(self.instead_of(name))

    def instead_of(self, name: Any) -> str:
        """What is said of a name that is not there."""
        refusal, names = f"there is no {self.kind} {name!r}", ", ".join(self)
        hint = self._hint(name) if isinstance(name, str) and name else ""
        return f"{refusal}: {hint} There are {names}." if hint else f"{refusal}: there are {names}."

    def _hint(self, name: str) -> str:
        ours = _elsewhere(name).removeprefix("da.").removeprefix("systems.").removesuffix("()")
        if ours in self:
            return f"{ours!r} comes nearest."
        longer = [each for each in self if _plain(name) in _plain(each)]
        near = _nearest(name, list(self)) or (longer[0] if len(longer) == 1 else "")
        return f"did you mean {near!r}?" if near else ""


def is_not_there(room: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that a room of the package, such as `plasma`, does not have."""
    prefix = "da." if room in ("methods", "statistics") else f"da.{room}."
    hint = instead_of(name, known, prefix)
    return AttributeError(f"dalembert.{room} has no {name!r}{hint}")


def _argument(name: str, word: str, known: list[str], room: str) -> str:
    """The refusal of an argument that a function of a room of the package does not have."""
    said = f"{name} has no argument {word}="
    if near := _nearest(word, known, 0.85):
        return f"{said}: did you mean {near}=?"
    for ours in known:
        for theirs, computed in CONVERTED.get(ours, {}).items():
            if _plain(word) == _plain(theirs):
                return f"{said}: write {ours}={computed}."
        meaning, words = ARGUMENTS.get(ours, ("", ""))
        if _plain(word) in map(_plain, words.split()):
            return f"{said}: write {ours}=, {meaning}."
    for reason, words in (BY_ROOM.get(room, {}) | NEITHER).items():
        if _plain(word) in map(_plain, words.split()):
            return f"{said}: {reason}."
    if near := _nearest(word, known):
        return f"{said}: did you mean {near}=?"
    return f"{said}; it takes {', '.join(known)}." if known else f"{said}; it takes none."


def _missing(name: str, missing: list[str]) -> str:
    """What a family of coefficients lacks, and where they can be seen."""
    few = missing if len(missing) <= 3 else [*missing[:2], "…", missing[-1]]
    return (
        f"{name} needs {', '.join(few)} as well, {len(missing)} in all: the coefficients of the "
        f"formulas in help(da.{name}), as da.{EXAMPLES[name]}().coefficients has them."
    )


def says_its_words(thing: Marked) -> Marked:
    """A function or class that refuses unknown arguments by saying which ones it takes."""
    fun: Any = thing.__init__ if isinstance(thing, type) else thing
    of = inspect.signature(fun).parameters.values()
    known = [p.name for p in of if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    known = [name for name in known if name != "self"]
    name = thing.__name__
    positional = [p.name for p in of if p.kind is not p.KEYWORD_ONLY]
    room = fun.__module__.partition(".")[2].partition(".")[0]
    needed = [p.name for p in of if p.name in known and p.default is p.empty]

    @wraps(fun)
    def called(*args: Any, **kwargs: Any) -> Any:
        for word in kwargs:
            if word not in known:
                raise TypeError(_argument(name, word, known, room))
        if name in EXAMPLES:
            given = {*positional[: len(args)], *kwargs}
            if missing := [each for each in needed if each not in given]:
                raise TypeError(_missing(name, missing))
        return fun(*args, **kwargs)

    marked: Any = called
    if isinstance(thing, type):
        marked = thing
        marked.__init__ = called
    return marked


def written(call: str) -> Callable[[Marked], Marked]:
    """Marks what makes functions, with a call of it: said where it is given instead of these."""

    def mark(maker: Marked) -> Marked:
        marked: Any = maker
        marked.written = call
        return maker

    return mark
