"""Strict settings for every test.

float64 is on and nothing is promoted in silence: neither types nor ranks. Tests run on the CPU
unless DALEMBERT_TEST_GPU is set; those marked `gpu` are skipped where there is no GPU.
"""

import atexit
import ctypes
import gc
import os
import shutil
import signal
import tempfile
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

# What one test has compiled, others load: the workers of a run share a folder that ends with it.
if "DALEMBERT_TEST_PROGRAMS" not in os.environ:
    os.environ["DALEMBERT_TEST_PROGRAMS"] = tempfile.mkdtemp(prefix="dalembert-programs-")
    atexit.register(shutil.rmtree, os.environ["DALEMBERT_TEST_PROGRAMS"], ignore_errors=True)
COMPILING = {
    "jax_compilation_cache_dir": os.environ["DALEMBERT_TEST_PROGRAMS"],
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
    "jax_traceback_in_locations_limit": 0,
}
for name, value in COMPILING.items():
    jax.config.update(name, value)

STRICT = {
    "jax_enable_x64": True,
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
}


def _be_strict() -> None:
    for name, value in STRICT.items():
        jax.config.update(name, value)


_be_strict()

# Tracing makes many small objects, and few of them in circles.
gc.set_threshold(20_000, 50, 100)

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
        os.truncate(self._path, len(self) + 1)

    def __len__(self) -> int:
        return os.path.getsize(self._path)


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    """For functions that count how often they are traced."""
    return Calls(str(tmp_path / "calls"))


PAGE = os.sysconf("SC_PAGESIZE")
MAX_MAPPINGS = 45_000
"""Pieces of memory before compiled code is thrown away: at 65,530 Linux refuses more of them, and
the compiler crashes."""
MAX_RESIDENT = 1400 * 2**20
"""Bytes in memory before compiled code is thrown away: two workers share 4 GiB."""
BETWEEN_MODULES = 1000 * 2**20
"""The same after a module: within one, what its tests share would be compiled again."""


def _resident() -> int:
    pages = Path("/proc/self/statm")
    return int(pages.read_text().split()[1]) * PAGE if pages.exists() else 0


def _forget_compiled_code() -> None:
    """Each piece of it has memory of its own, which the C library only gives back when asked."""
    jax.clear_caches()
    gc.collect()
    give_back = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if give_back is not None:
        give_back(0)


@pytest.fixture(autouse=True, scope="module")
def few_mappings_and_little_code() -> Iterator[None]:
    yield
    maps = Path("/proc/self/maps")
    mappings = maps.read_bytes().count(b"\n") if maps.exists() else 0
    if mappings > MAX_MAPPINGS or _resident() > BETWEEN_MODULES:
        _forget_compiled_code()


@pytest.fixture(autouse=True)
def little_memory() -> Iterator[None]:
    yield
    if _resident() > MAX_RESIDENT:
        _forget_compiled_code()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked `gpu` where there is no GPU to run them."""
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
