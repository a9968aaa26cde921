"""Strict settings for every test.

float64 is on and nothing is promoted in silence: neither types nor ranks. Tests run on the CPU
unless DALEMBERT_TEST_GPU is set; those marked `gpu` are skipped where there is no GPU.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

USE_GPU = bool(os.environ.get("DALEMBERT_TEST_GPU"))

# Also for the processes that tests start, and before JAX reads them.
os.environ["MPLBACKEND"] = "Agg"
if USE_GPU:
    # Several workers share one GPU: none may take most of its memory in advance.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
else:
    os.environ["JAX_PLATFORMS"] = "cpu"
if "PYTEST_XDIST_WORKER" in os.environ:
    # Each worker would otherwise start as many threads as there are cores. NPROC is read by XLA.
    os.environ.setdefault("NPROC", "2")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")

# A process started in the background ignores Ctrl-C, and tests send it to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

STRICT = {
    "jax_enable_x64": True,
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
}


def _be_strict() -> None:
    for name, value in STRICT.items():
        jax.config.update(name, value)


_be_strict()

# Compiling takes longer than any deadline; random examples must not depend on the day.
hypothesis.settings.register_profile("dalembert", deadline=None, derandomize=True)
hypothesis.settings.load_profile("dalembert")


@pytest.fixture(autouse=True)
def strict_jax() -> Iterator[None]:
    """Put the settings back after a test that changed them."""
    yield
    _be_strict()


class Calls:
    """A number of calls, in a file: what is in memory is part of what a function is known by."""

    def __init__(self, path: str) -> None:
        self._path = path
        Path(path).touch()

    def add(self) -> None:
        with open(self._path, "ab") as file:
            file.write(b".")

    def __len__(self) -> int:
        return os.path.getsize(self._path)


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    """For functions that count how often they are traced."""
    return Calls(str(tmp_path / "calls"))


MAX_MAPPINGS = 45_000
"""Pieces of memory before compiled code is thrown away: at 65,530 Linux refuses more of them, and
the compiler crashes."""


@pytest.fixture(autouse=True, scope="module")
def few_mappings() -> Iterator[None]:
    """Forget compiled code, each piece of which has memory of its own, before it is too much."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MAX_MAPPINGS:
        jax.clear_caches()


# Cases that take long, beside quicker ones of the same test that show the same.
SLOW_CASES = (
    "TestConvergence::test_one_noise[midpoint]",
    "TestGeneratingFunction::test_gradient_and_failure_inside_jit",
    "TestPrinciple::test_holds_with_one_noise[smooth]",
    "TestTheStepIsGenerated::test_every_structured_method[2-2]",
    "TestTheGeneratedStepIsTheStep::test_small[srkw1(0.0)]",
    "test_9_srkw2_has_no_structure_with_two_noises",
    "test_orders_by_enumeration_for_one_noise[srkw2]",
    "test_orders_by_enumeration_for_one_noise[srkw1(1/2)]",
    "test_the_discrete_balance_fails_without_the_symmetry",
    "test_the_discrete_balance_is_exact_at_every_step[stormer_verlet]",
    "test_two_steps[srkw2-lenard_bernstein]",
    "test_two_steps[srkw2-langevin]",
    "test_two_steps[srkw1-planar]",
    "test_shortcuts_change_nothing[heun-planar]",
    "test_shortcuts_change_nothing[e1-pendulum]",
    "test_zero_force_is_symplectic_to_rounding[dirk-1-2]",
    "test_noise_along_the_drift_only_changes_the_clock[dirk]",
    "test_energy_of_the_kubo_oscillator_where_the_bias_of_the_method_shows",
    "test_order_one_for_one_noise_on_a_nonlinear_system[e1]",
    "test_factors_converge_with_order_one_for_noise_in_the_friction[stormer_verlet]",
    "test_eager_jit_vmap_scan_and_loop_agree_to_rounding[gaussian-3]",
    "test_linear_equations_take_exactly_one_newton_step[srkw2]",
    "test_registers_take_the_steps_of_march_fast[explicit]",
    "test_registers_take_the_steps_of_march_fast[linear]",
    "test_registers_take_the_steps_of_march_fast[in the plane]",
    "test_stretches_may_begin_and_end_within_a_block_of_four[with dZ]",
    "test_single_precision[nonlinear]",
    "test_more_hard_paths_than_one_group[1]",
    "test_paths_of_explicit_methods_fail_at_the_step_at_which_they_do[1]",
    "test_eager_jit_vmap_scan_and_loop_agree_to_rounding[truncated-3]",
    "test_chain_of_500_oscillators[midpoint]",
    "test_every_study_runs_and_leaves_its_files[lenard-bernstein]",
    "test_every_study_runs_and_leaves_its_files[kubo]",
    "test_stormer_verlet_shrinks_volume_by_the_corrected_formula[0.3-0.0]",
    "test_stormer_verlet_shrinks_volume_by_the_corrected_formula[0.05--0.5]",
    "test_order_one_half_for_two_noises_that_do_not_commute[stormer_verlet]",
    "test_e1_is_not_of_order_one_and_a_half_but_has_a_smaller_error_than_heun[damped_kubo]",
    "test_shortcuts_change_nothing[srkw2-damped_kubo]",
    "test_shortcuts_change_nothing[rs1-van_der_pol]",
    "test_shortcuts_change_nothing[midpoint-lorentz]",
    "test_shortcuts_change_nothing[stormer_verlet-lorentz]",
    "test_zero_force_is_symplectic_to_rounding[stormer_verlet-2-2]",
    "test_zero_force_is_symplectic_to_rounding[general dirk-1-2]",
    "test_damped_kubo_follows_its_exact_path[midpoint]",
    "test_order_one_for_one_noise_on_a_linear_system_with_its_exact_path[midpoint]",
    "TestTheStepIsGenerated::test_each_weak_condition_is_needed[1]",
    "TestTheStepIsGenerated::test_each_mean_square_condition_is_needed[1]",
    "test_two_steps[srkw2-damped_kubo]",
    "test_runs_agree_with_xla_to_rounding[e1]",
    "test_runs_agree_with_xla_to_rounding[no noise]",
    "test_paths_of_explicit_methods_fail_at_the_step_at_which_they_do[7]",
    "test_registers_take_the_steps_of_march_fast[with dZ]",
    "test_structured_methods_are_symplectic_without_forces[midpoint-two_noise]",
    "test_structured_methods_are_symplectic_without_forces[srkw2-van_der_pol]",
    "test_eager_jit_vmap_scan_and_loop_agree_to_rounding[gaussian-1]",
    "test_linear_system_has_its_closed_form[stormer_verlet]",
    "test_friction_is_not_symplectic[stormer_verlet]",
    "TestConvergence::test_one_noise[srkw1(0.0)]",
    "test_stormer_verlet_on_a_non_separable_system_fails_qs2_alone",
    "test_a_pole_within_reach_is_refused_and_one_out_of_reach_is_not",
    "test_angular_momentum_is_conserved[stormer_verlet]",
    "test_killed_and_still_the_same_bits[20]",
    "test_registers_take_the_steps_of_march_fast[several blocks]",
    "test_registers_take_the_steps_of_march_fast[two noises]",
    "test_runs_agree_with_xla_to_rounding[two noises]",
    "test_runs_agree_with_xla_to_rounding[srkw2]",
    "test_zero_noise_is_the_deterministic_method[midpoint]",
    "test_structure[lorentz]",
    "test_damped_kubo_follows_its_exact_path[dirk]",
    "test_report_of_a_step_that_is_solved[srkw1]",
    "test_gradient_agrees_with_finite_differences[srkw1]",
    "test_vmap_gives_the_same_as_a_loop[srkw1]",
    "test_vmap_gives_the_same_as_a_loop[dirk]",
    "test_eager_jit_vmap_scan_and_loop_agree_to_rounding[truncated-1]",
    "test_shortcuts_change_nothing[rs2-langevin]",
    "test_shortcuts_change_nothing[r2-lorentz]",
    "test_methods_driven_by_gaussian_increments_are_of_weak_order_one[midpoint]",
    "test_order_one_for_one_noise_on_a_linear_system_with_its_exact_path[stormer_verlet]",
    "TestConvergence::test_not_for_a_method_that_does_not_converge",
    "test_e1_is_not_of_order_one_and_a_half_but_has_a_smaller_error_than_heun[pendulum]",
    "test_common_paths_find_the_enumerated_errors",
    "test_an_extrapolated_method_agrees_with_the_generator_series",
    "test_standard_errors_are_neither_too_small_nor_too_large",
    "test_midpoint_satisfies_qs2_for_linear_dynamics_only",
    "test_srkw1_with_one_half_is_of_order_two_for_additive_noise",
    "test_runs_of_any_size_and_number_of_workers_start_alike",
    "test_strong_order_one_along_their_brownian_paths[stormer_verlet]",
    "test_a_solution_is_made_of_our_steps[stormer_verlet]",
    "test_a_solution_is_made_of_our_steps[e1]",
    "test_linear_system_has_its_closed_form[midpoint]",
    "TestGeneratingFunction::test_of_the_kubo_oscillator",
    "TestTheGeneratedStepIsTheStep::test_not_for_heun",
    "test_a_method_for_the_ito_equation_does_not_converge_to_the_right_limit[damped_kubo]",
    "test_orders_by_enumeration_for_two_noises_that_do_not_commute[rs2]",
    "TestValues::test_derivatives_are_those_of_the_function",
    "test_factors_along_a_path_are_those_of_the_product_of_its_steps",
    "test_volume_depends_on_the_state_without_separability[0.3-0.8]",
    "test_float32_runs_start_from_float32_states",
    "test_orders_by_enumeration_for_one_noise[rs2]",
    "test_zero_noise_is_the_deterministic_method[stormer_verlet]",
    "test_shortcuts_change_nothing[dirk-lenard_bernstein]",
    "test_an_error_that_cannot_be_told_from_zero_gives_no_order",
    "TestValues::test_derivative_with_respect_to_parameters",
    "test_zero_force_is_symplectic_for_srkw2_with_separable_hamiltonians[1-False]",
    "TestTheStepIsGenerated::test_each_weak_condition_is_needed[2]",
    "test_switching_one_line_leaves_the_solution_the_same",
    "test_report_of_a_step_that_is_solved[dirk]",
    "test_gradient_agrees_with_finite_differences[dirk]",
    "test_the_four_steps_of_a_block_are_normal_and_independent[float32]",
    "TestConvergence::test_one_noise[stormer_verlet]",
    "TestGeneratingFunction::test_generates_the_flow",
    "test_rest_at_a_stiff_equilibrium_is_no_failure[coupled]",
    "test_particles_far_from_the_origin_are_no_failures[1.0-coupled]",
    "test_zero_force_is_symplectic_to_rounding[midpoint-3-1]",
    "test_zero_force_is_symplectic_to_rounding[srkw1-1-2]",
    "test_order_one_for_one_noise_on_a_nonlinear_system[midpoint]",
    "test_second_derivatives_agree_with_differences_of_gradients[midpoint]",
    "test_stormer_verlet_is_quasi_symplectic_for_linear_friction",
    "test_nothing_traced_is_kept_after_a_step",
    "test_structure[planar]",
    "test_float64_where_it_is_switched_off",
    "test_orders_by_enumeration_for_two_noises_that_do_not_commute[srkw1(1/2)]",
    "TestTheStepIsGenerated::test_every_structured_method[1-1]",
    "TestConvergence::test_prints_as_a_table",
    "TestAdditiveNoise::test_steps_are_generated[my method for additive noise]",
    "TestAdditiveNoise::test_the_generated_step_is_the_step",
    "test_the_discrete_balance_is_exact_at_every_step[srkw1]",
    "test_the_page_is_readable[planar]",
    "test_order_one_half_for_two_noises_that_do_not_commute[heun]",
    "test_rs2_with_the_other_signs_of_the_mixed_variables_is_of_order_one[False]",
    "test_chain_of_500_oscillators[stormer_verlet]",
    "test_straight_line_code_has_the_values_of_the_jacobian[slices]",
    "test_shortcuts_change_nothing[srkw1-two_noise]",
    "test_shortcuts_change_nothing[ninomiya_victoir]",
    "test_theory_follows_a_global_too",
    "test_killed_and_still_the_same_bits[3]",
    "test_a_solution_is_made_of_our_steps[midpoint]",
    "test_every_study_runs_and_leaves_its_files[lorentz]",
    "test_gradients_backwards_and_forwards_agree",
    "TestPrinciple::test_holds_with_one_noise[rough]",
    "test_what_was_done_before_changes_nothing",
    "test_runs_take_the_steps_of_da_step[additive_midpoint]",
    "test_runs_take_the_steps_of_da_step[obabo]",
    "test_runs_take_the_steps_of_da_step[aboba]",
    "test_shortcuts_change_nothing[additive_midpoint]",
    "test_shortcuts_change_nothing[aboba]",
    "test_shortcuts_change_nothing[obabo]",
    "test_a_reference_by_an_independent_method_stands_for_the_exact_solution",
    "test_steps_are_symplectic_without_forces[additive_midpoint]",
    "test_steps_are_symplectic_without_forces[aboba]",
    "test_steps_are_symplectic_without_forces[obabo]",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow cases; skip the tests marked `gpu` where there is no GPU to run them."""
    for item in items:
        if item.nodeid.endswith(SLOW_CASES):
            item.add_marker(pytest.mark.slow)
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and not _has_gpu():
        skip = pytest.mark.skip(reason="needs DALEMBERT_TEST_GPU=1 and a GPU")
        for item in gpu_items:
            item.add_marker(skip)


def _has_gpu() -> bool:
    if not USE_GPU:
        return False
    try:
        return bool(jax.devices("gpu"))
    except RuntimeError:
        return False
