"""Runs on executors: the bits of one machine, whoever runs the blocks and whoever is lost."""

import multiprocessing
import os
import pickle
import queue
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import dalembert as da
import interrupted_run
from dalembert import commands, scheduler
from dalembert.ensemble import blocks, executors, pool, progress, remote
from dalembert.ensemble import settings as grains
from dalembert.ensemble.processes import LostError
from dalembert.studies.study import load_result
from interrupted_run import differences

OPTIONS = {"t_end": 60.0, "paths": 10 * 256 + 30}
SMALL = grains.Grain(64, 128, 64)


def simulate(**options):
    return interrupted_run.simulate(**(OPTIONS | options))


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    """Many blocks of few paths, in legs that take no time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grains, "CPU_GRAIN", SMALL)
        patch.setattr(blocks, "LEG_SECONDS", 0.01)
        patch.setattr(blocks, "FIRST_LEG", 64 * 128)
        yield


@pytest.fixture(scope="module")
def undisturbed(small_blocks):
    return simulate()


class Moody(Executor):
    """Two threads that lose some tasks, and give back the others out of turn."""

    num_workers = 2
    often = 1
    """How often the same task may be lost."""

    def __init__(self, loses=0.0):
        self.loses, self.chance, self.most, self.tasks = loses, random.Random(3), 0, 0
        self.lost = Counter()
        self.waiting, self.now = queue.LifoQueue(), threading.Lock()
        self.threads = [threading.Thread(target=self.work, daemon=True) for _ in range(2)]
        for thread in self.threads:
            thread.start()

    def work(self):
        while (task := self.waiting.get()) is not None:
            future, fun, args = task
            if not future.set_running_or_notify_cancel():
                continue
            with self.now:
                self.tasks += 1
                blocks = args[1]["blocks"]
                is_lost = self.chance.random() < self.loses and self.lost[blocks] < self.often
                self.lost.update([blocks] * is_lost)
            if is_lost:
                future.set_exception(ConnectionError("the worker is gone"))
            else:
                future.set_result(fun(*args))

    def submit(self, fun, /, *args):
        future = Future()
        self.waiting.put((future, fun, args))
        self.most = max(self.most, self.waiting.qsize())
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        for _ in self.threads:
            self.waiting.put(None)


def test_threads_give_the_bits_of_one_machine(undisturbed):
    with ThreadPoolExecutor(2) as pool:
        run = simulate(executor=pool)
    assert not differences(run, undisturbed)
    assert run.provenance["processes"] == 1


@pytest.mark.slow
def test_expectations_are_those_of_one_machine():
    def energy(q, p, params):
        return p[0] ** 2 / 2 - jnp.cos(q[0])

    system = da.systems.langevin(lambda q: -jnp.cos(q[0]), gamma=0.5, temperature=0.25)
    asked = system, da.midpoint(), ([1.0], [0.0]), energy
    options = dict(t_end=2.0, tolerance=0.02, progress=False)
    alone = da.expect(*asked, **options)
    with Moody(loses=0.1) as moody:
        shared = da.expect(*asked, executor=moody, **options)
    assert moody.tasks > 0
    assert (shared.value, shared.error) == (alone.value, alone.error)
    assert [level.paths for level in shared.levels] == [level.paths for level in alone.levels]


def test_lost_and_unfinished_blocks_go_on(undisturbed, monkeypatch):
    """Tasks that return after every leg, in any order, if they return at all."""
    monkeypatch.setattr(remote, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(executors, "TASK_SECONDS", 0.0)
    monkeypatch.setattr(blocks, "LEG_SECONDS", 0.0)
    with Moody(loses=0.1) as moody:
        run = simulate(executor=moody, workers=2)
    assert not differences(run, undisturbed)
    assert len(moody.lost) > 2 and moody.tasks > 41 + len(moody.lost)
    assert moody.most <= executors.IN_FLIGHT * moody.num_workers


def test_what_is_beyond_a_shared_end_is_not_done_again_and_again(tmp_path, monkeypatch):
    """It is not remembered, so no slice ends there."""
    monkeypatch.setattr(remote, "SLICE_SECONDS", 0.0)
    options = {"t_end": 60.0, "paths": 64, "save_every": 10**20}
    with ThreadPoolExecutor(1) as pool:
        run = simulate(executor=pool, checkpoint=tmp_path / "run.ckpt", **options)
    assert not differences(run, simulate(**options))


def test_results_that_wait_do_not_grow_with_the_number_of_blocks(undisturbed, monkeypatch):
    """The caller's memory: blocks that come before the first one are few, however late it is."""
    waiting, take, run_ = [], executors.Remote._take, remote._run

    def watched(remote_, work, future):
        take(remote_, work, future)
        waiting.append(len(remote_.found))

    def late(ready, given):
        """The first block when nothing else comes any more."""
        before = -1
        while 0 in given and (len(waiting) < 4 or len(waiting) > before):
            before = len(waiting)
            time.sleep(0.3)
        return run_(ready, given)

    monkeypatch.setattr(executors, "TASK_SECONDS", 0.0)
    monkeypatch.setattr(executors.Remote, "_take", watched)
    monkeypatch.setattr(remote, "_run", late)
    with ThreadPoolExecutor(2) as pool:
        assert not differences(simulate(executor=pool, workers=1), undisturbed)
    assert len(waiting) > 41 and max(waiting) == executors.IN_FLIGHT * 2


@pytest.mark.slow
def test_a_run_on_an_executor_goes_on_to_a_later_end(tmp_path):
    options = {"checkpoint": tmp_path / "run.ckpt", "save_every": 130}
    with ThreadPoolExecutor(2) as pool:
        simulate(executor=pool, t_end=25.0, **options)
        on_pool = simulate(executor=pool, **options)
    assert not differences(on_pool, simulate(save_every=130))


@pytest.mark.slow
@pytest.mark.parametrize(("paths", "is_large"), [(10 * 256 + 30, False), (70_000, True)])
def test_what_is_large_is_sent_to_workers_that_do_not_know_it(paths, is_large, monkeypatch):
    """A worker that has forgotten it, or was never told, says so and is told."""
    monkeypatch.setattr(executors, "TASK_SECONDS", 0.0)
    starts = np.linspace(-1.0, 1.0, 2 * paths).reshape(2, paths, 1)
    given = da.systems.damped_kubo(), da.heun(), tuple(starts)
    options = {"dt": 0.1, "t_end": 1.0, "paths": paths, "save_every": 10, "keep": "final"}
    remote._ready.cache_clear()

    class Forgetful(ThreadPoolExecutor):
        tasks, sent = 0, []

        def submit(self, fun, /, text, given):
            self.tasks += 1
            if given["payload"] is not None:
                self.sent.append(len(given["payload"]))
            return super().submit(self.work, self.tasks, fun, text, given)

        def work(self, number, fun, text, given):
            if number in (3, 7):
                remote._ready.cache_clear()
            return fun(text, given)

    with Forgetful(1) as pool:
        run = da.simulate(*given, executor=pool, **options)
    assert not differences(run, da.simulate(*given, **options))
    assert (pool.sent[0] > executors.LARGE_BYTES) == is_large
    assert pool.tasks > 10 and len(pool.sent) == (3 if is_large else pool.tasks)


def test_what_is_lost_again_and_again_ends_the_run_and_the_checkpoint_goes_on(
    undisturbed, tmp_path, monkeypatch
):
    monkeypatch.setattr(executors, "GROWTH", 1)
    file = da.Checkpoint(tmp_path / "run.ckpt")

    class Dying(Moody):
        often = executors.ATTEMPTS

        def submit(self, fun, /, *args):
            self.loses = float(self.tasks > 6)
            return super().submit(fun, *args)

    with Dying() as dying, pytest.raises(LostError, match=r"the same blocks 3 times.*goes on from"):
        simulate(executor=dying, checkpoint=file, workers=2)
    assert len(file.path.read_bytes()) > 0
    calls = []
    monkeypatch.setattr(pool, "run_block", counted(pool.run_block, calls))
    assert not differences(simulate(checkpoint=file), undisturbed)
    assert 0 < len(calls) < 41


def test_tasks_that_are_cancelled_elsewhere_end_the_run(undisturbed, tmp_path, monkeypatch):
    """Nobody is told of a task that was cancelled before a worker looked at it."""
    file = tmp_path / "run.ckpt"
    monkeypatch.setattr(executors, "TASK_SECONDS", 0.0)

    class Shut(ThreadPoolExecutor):
        asked = 0

        def submit(self, fun, /, *args):
            self.asked += 1
            if self.asked <= 5:
                return super().submit(fun, *args)
            future = Future()
            future.cancel()
            return future

    with Shut(1) as pool, pytest.raises(LostError, match=r"has given up.*goes on from"):
        simulate(executor=pool, checkpoint=file, workers=1)
    assert not differences(simulate(checkpoint=file), undisturbed)


def counted(fun, calls):
    def call(*args):
        calls.append(args)
        return fun(*args)

    return call


@pytest.mark.slow
def test_ctrl_c_cancels_what_is_under_way(undisturbed, tmp_path):
    file = tmp_path / "run.ckpt"
    with Moody() as moody:
        steps = iter(range(10**9))

        class Pressed(Moody):
            def submit(self, fun, /, *args):
                if next(steps) == 5:
                    signal.raise_signal(signal.SIGINT)
                return moody.submit(fun, *args)

        with pytest.raises(da.Interrupted, match="The same call goes on from there"):
            simulate(executor=Pressed(), checkpoint=file, workers=1)
    for thread in moody.threads:
        thread.join(600)
    done = moody.tasks
    assert done <= 5
    with ThreadPoolExecutor(1) as pool:
        assert not differences(simulate(executor=pool, checkpoint=file), undisturbed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dalembert", "9.9"),
        ("jax", "0.0.1"),
        ("jaxlib", "0.0.2"),
        ("sources", "others"),
        ("device_kind", "abacus"),
        ("processor", "Z80"),
        ("jax_optimization_level", "7"),
    ],
)
def test_a_worker_that_would_compute_otherwise_is_refused_by_name(name, value, monkeypatch):
    remote._ready.cache_clear()  # a worker that has run this before is not asked again
    make = remote._machine

    def elsewhere(backend):
        found = make(backend)
        there = found["versions"] if name in found["versions"] else found
        there[name] = value
        return found

    class Elsewhere(ThreadPoolExecutor):
        def submit(self, fun, /, *args):
            monkeypatch.setattr(remote, "_machine", elsewhere)
            return super().submit(fun, *args)

    with (
        Elsewhere(1) as pool,
        pytest.raises(remote.RefusedWorkerError, match=rf"worker .*{name} \(.*{value}.* there\)"),
    ):
        simulate(executor=pool)


def test_a_worker_with_other_functions_is_refused_by_name(monkeypatch):
    """A module that is not the same there: functions travel as names of what is in it."""
    remote._ready.cache_clear()

    class Elsewhere(ThreadPoolExecutor):
        def submit(self, fun, /, text, given):
            machine, identity, body = pickle.loads(given["payload"])
            identity["observe"]["q"]["functions"] = {"": "another"}
            payload = pickle.dumps((machine, identity, body))
            return super().submit(fun, text, given | {"payload": payload})

    with Elsewhere(1) as pool, pytest.raises(remote.RefusedWorkerError, match=r"observe\.q"):
        simulate(executor=pool)


def test_another_llvmlite_is_refused_where_it_makes_the_code(monkeypatch):
    remote._ready.cache_clear()
    main, version = threading.main_thread(), remote.version

    def elsewhere(name):
        return version(name) if threading.current_thread() is main else "0.0.3"

    monkeypatch.setattr(remote, "version", elsewhere)
    with ThreadPoolExecutor(1) as pool:
        assert simulate(executor=pool, engine="XLA", t_end=2.0).provenance["code"] == "XLA"
        with pytest.raises(remote.RefusedWorkerError, match=r"llvmlite \(.*'0\.0\.3' there\)"):
            simulate(executor=pool, t_end=2.0)


slope = 1.0


@jax.custom_jvp
def bent(x):
    return x


@bent.defjvp
def bent_jvp(at, along):
    return bent(*at), slope * along[0]


def bent_energy(q, p):
    return jnp.sum(bent(p * p) + q * q) / 2


def test_a_worker_with_another_derivative_rule_is_refused_by_name(monkeypatch):
    """The values of the function are the same there, and nothing is compared with a checkpoint."""

    class Elsewhere(ThreadPoolExecutor):
        def submit(self, fun, /, *args):
            monkeypatch.setattr(sys.modules[__name__], "slope", 2.0)
            return super().submit(fun, *args)

    system = da.System(H=bent_energy, dim=1)
    with Elsewhere(1) as pool, pytest.raises(remote.RefusedWorkerError, match=r"functions\.H"):
        da.simulate(system, da.heun(), ([1.0], [0.0]), dt=0.1, t_end=0.1, executor=pool)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("context", "value"),
    [
        (jax.default_matmul_precision, "highest"),
        (jax.numpy_rank_promotion, "allow"),
        (jax.threefry_partitionable, False),
        (jax.enable_x64, False),
    ],
)
def test_contexts_of_jax_reach_the_workers(context, value, monkeypatch):
    """They are those of the caller, and only in its runs that are within."""
    seen, run_ = [], remote._run

    def watched(ready, given):
        seen.append(jax.config.jax_default_matmul_precision)
        return run_(ready, given)

    def energy(q, p):
        # Matrices are multiplied, and ranks differ where they may.
        row = q if value == "allow" else q[None]
        return jnp.sum((weights @ jnp.outer(q, q)) * row) + p @ p

    weights = np.linspace(0.1, 0.7, 4).reshape(2, 2)
    system = da.System(H=lambda q, p: (p @ p + q @ q) / 2, dim=2)
    start = lambda key: tuple(jax.random.normal(key, (2, 2)))  # noqa: E731

    def run(**options):
        given = {"dt": 0.1, "t_end": 1.0, "paths": 300, "observe": {"e": energy}} | options
        return da.simulate(system, da.midpoint(), start, keep="final", **given)

    monkeypatch.setattr(remote, "_run", watched)
    with ThreadPoolExecutor(1) as pool:
        with context(value):
            here, there = run(), run(executor=pool)
        assert not differences(here, there)
        matmul = value if context is jax.default_matmul_precision else None
        assert set(seen) == {matmul}
        seen.clear()
        # The same run outside of the context.
        value = None
        assert not differences(run(), run(executor=pool))
        assert set(seen) == {None}


def test_copies_of_one_version_are_told_apart(tmp_path):
    for name, text in (("one", "a = 1"), ("two", "a = 1"), ("three", "a = 2")):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "inner" / "file.py").write_text(text)
    one, two, three = (remote._sources(tmp_path / name) for name in ("one", "two", "three"))
    assert one == two != three
    assert remote._machine("cpu")["sources"] not in (one, three)


def test_the_line_of_progress_says_how_many_workers_there_are(monkeypatch):
    """Where nothing but the line is faked."""
    written = []
    monkeypatch.setattr(progress, "_is_watched", lambda: True)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "_columns", lambda: 200)
    monkeypatch.setattr(progress.ProgressBar, "_write", lambda bar, text: written.append(text))
    given = da.systems.damped_kubo(), da.heun(), ([2.0], [0.0])
    options = {"dt": 0.1, "t_end": 100.0, "paths": 2000, "save_every": 100}
    with ThreadPoolExecutor(3) as pool:
        da.simulate(*given, executor=pool, **options)
    assert any("path-steps" in line and ", 3 workers" in line for line in written)
    written.clear()
    da.simulate(*given, **options)
    assert written and not any("worker" in line for line in written)


def test_what_cannot_be_sent_is_named():
    lock = threading.Lock()

    def locked(q, p):
        with lock:
            return q[0]

    system = da.System(H=lambda q, p: jnp.sum(p * p + q * q) / 2, dim=1)
    with ThreadPoolExecutor(1) as pool:

        def run(**options):
            given = {"dt": 0.1, "t_end": 0.2, "executor": pool} | options
            da.simulate(system, da.midpoint(), ([1.0], [0.0]), **given)

        with pytest.raises(TypeError, match=r"observe\['place'\] cannot be sent .*lock"):
            run(observe={"place": locked, "energy": system.H})


def test_an_exception_on_a_worker_is_raised_here(monkeypatch):
    def burst(*args):
        raise MemoryError("the block is too large")

    monkeypatch.setattr(remote, "_run", burst)
    with ThreadPoolExecutor(1) as pool, pytest.raises(MemoryError, match="too large") as caught:
        simulate(executor=pool)
    assert any("On worker" in note and "burst" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("missing", ["dalembert.ensemble.remote", "cloudpickle"])
def test_a_worker_without_the_library_is_refused_by_name(missing, monkeypatch):
    class Bare(ThreadPoolExecutor):
        def submit(self, fun, /, *args):
            monkeypatch.setitem(sys.modules, missing, None)
            return super().submit(fun, *args)

    here = f"{socket.gethostname()}:{os.getpid()}"
    text = rf"worker {here} cannot import dalembert {da.__version__}.*ModuleNotFound.*{missing}"
    with Bare(1) as pool, pytest.raises(remote.RefusedWorkerError, match=text):
        simulate(executor=pool)


def hidden(error, **links):
    for name, value in links.items():
        setattr(error, name, value)
    return error


MISSING = ModuleNotFoundError("No module named 'dalembert'", name="dalembert")


@pytest.mark.parametrize(
    "problem",
    [
        MISSING,
        ImportError("jax requires jaxlib to be installed, not dalembert"),
        hidden(RuntimeError("it broke"), __cause__=ValueError("text"), __context__=MISSING),
        hidden(RuntimeError("it broke"), __cause__=hidden(OSError(), __context__=MISSING)),
    ],
)
def test_an_executor_may_hide_that_the_library_is_missing(problem):
    class Hiding(Executor):
        def submit(self, fun, /, *args):
            future = Future()
            future.set_exception(problem)
            return future

    text = rf"a worker of the executor cannot import dalembert {da.__version__}.*: .*dalembert"
    with pytest.raises(remote.RefusedWorkerError, match=text):
        simulate(executor=Hiding())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (b"garbage", r"b'garbage' .*pickle"),
        (None, "None"),
        (pickle.dumps({"worker": "x"}), "something else"),
        (("a", "b"), r"\('a', 'b'\)"),
        (b"x" * 10**6, r"b'xxx.*\.\.\.xxx"),
    ],
)
def test_what_is_no_outcome_is_refused(given, told):
    class Inventing(Executor):
        def submit(self, fun, /, *args):
            future = Future()
            future.set_result(given)
            return future

    with pytest.raises(LostError, match=rf"the executor gave .*{told}.* must give what its"):
        simulate(executor=Inventing())


def test_cloudpickle_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with ThreadPoolExecutor(1) as pool, pytest.raises(ImportError, match=r"\[cluster\]"):
        simulate(executor=pool)


def test_an_executor_that_takes_no_more_says_why():
    class Closed(Executor):
        def submit(self, fun, /, *args):
            raise RuntimeError("It is closed.")

    with pytest.raises(LostError, match=r"takes no more tasks: It is closed\. The run"):
        simulate(executor=Closed())


def test_what_is_no_executor_is_refused():
    with pytest.raises(TypeError, match=r"like a concurrent\.futures\.Executor.*'tcp://there'"):
        simulate(executor="tcp://there")
    with pytest.raises(TypeError, match=r"not the class ThreadPoolExecutor: write Thr.*\(…\)"):
        simulate(executor=ThreadPoolExecutor)

    class Client:
        def get_executor(self):
            return Moody()

    with pytest.raises(TypeError, match="not the class Client"):
        simulate(executor=Client)

    class Promising(Moody):
        def submit(self, fun, /, *args):
            return "soon"

    with pytest.raises(TypeError, match=r"Promising\.submit .*Future, not 'soon'"):
        simulate(executor=Promising())
    fork = multiprocessing.get_context("fork")
    with (
        ProcessPoolExecutor(1, mp_context=fork) as pool,
        pytest.raises(ValueError, match=r'get_context\("spawn"\)'),
    ):
        simulate(executor=pool)

    def traced(x):
        return simulate_one(x).mean["energy"][-1]

    def simulate_one(x):
        system = da.systems.damped_kubo()
        options = {"dt": 0.1, "t_end": 0.2, "executor": Moody}
        return da.simulate(system, da.midpoint(), (x, x), **options)

    with pytest.raises(ValueError, match="executor cannot be had inside jit"):
        jax.jit(traced)(jnp.ones(1))


def test_the_program_says_what_dask_needs(tmp_path, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text("")

    def said(*options):
        result = CliRunner().invoke(commands.app, ["run", str(script), *options])
        assert result.exit_code == 2
        return result.output

    assert "give one of them" in said("--dask", "tcp://there:1", "--processes", "2")
    monkeypatch.setattr(scheduler, "CONNECT_SECONDS", 0.2)
    assert "no scheduler of Dask at tcp://localhost:1" in said("--dask", "tcp://localhost:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "extra `cluster`" in said("--dask", "tcp://there:1")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "does another program listen there? (MemoryError"),
        (b"", "something listens there, and says nothing"),
    ],
)
def test_the_program_says_that_a_port_is_not_one_of_dask(word, reason, tmp_path, monkeypatch):
    script, met = tmp_path / "script.py", []
    script.write_text("")

    def greet(server):
        with suppress(OSError):
            while True:
                met.append(server.accept()[0])
                met[-1].sendall(word)

    monkeypatch.setattr(scheduler, "CONNECT_SECONDS", 1.0)
    with socket.create_server(("localhost", 0)) as server:
        threading.Thread(target=greet, args=(server,), daemon=True).start()
        address = f"tcp://localhost:{server.getsockname()[1]}"
        result = CliRunner().invoke(commands.app, ["run", str(script), "--dask", address])
        server.shutdown(socket.SHUT_RDWR)
    for connection in met:
        connection.close()
    assert result.exit_code == 2 and met
    assert result.output.startswith("error: no scheduler of Dask")
    assert f"at {address}" in result.output and reason in result.output


# From here on with worker processes.


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Workers find the modules of the tests, and what another has compiled."""
    here = str(Path(interrupted_run.__file__).parent)
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]),
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


class Cluster:
    """A scheduler of Dask and its workers, each a process."""

    def __init__(self, folder, environment):
        self.environment, self.workers = environment, []
        self.file = folder / "scheduler.json"
        self.scheduler = self.start("scheduler", "--port", "0", "--scheduler-file", self.file)

    def start(self, kind, *arguments):
        command = [sys.executable, "-m", "dask", kind, *map(str, arguments), "--no-dashboard"]
        return subprocess.Popen(
            command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def join(self, preload="dalembert.ensemble.remote", threads=1, cores=()):
        """Let another take part, once it has imported what it needs, on some cores alone."""
        given = ("--scheduler-file", self.file, "--no-nanny", "--nthreads", threads)
        self.workers.append(self.start("worker", *given, "--preload", preload))
        if cores:
            os.sched_setaffinity(self.workers[-1].pid, cores)

    def kill(self, which):
        worker = self.workers.pop(which)
        worker.kill()
        worker.wait()

    def client(self):
        from distributed import Client

        while not self.file.exists():
            time.sleep(0.1)
        return Client(scheduler_file=str(self.file), timeout=600)

    def end(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@contextmanager
def cluster(folder, environment, workers):
    made = Cluster(folder, environment)
    try:
        for _ in range(workers):
            made.join()
        yield made
    finally:
        made.end()


@pytest.mark.slow
def test_one_two_and_five_workers_give_the_same_bits(undisturbed, tmp_path, environment):
    mine = os.sched_getaffinity(0)
    with cluster(tmp_path, environment, 1) as team, team.client() as client:
        for workers, threads, cores in ((1, 1, ()), (2, 1, {min(mine)}), (5, 2, ())):
            while len(team.workers) < workers:
                team.join(threads=threads, cores=cores)
            client.wait_for_workers(workers)
            has = set(client.run(pool.cores).values())
            assert has == ({len(mine), 1} if workers > 1 else {len(mine)})
            for executor in (client, client.get_executor()):
                run = simulate(executor=executor)
                assert not differences(run, undisturbed)
        assert run.provenance["processes"] > 1


@pytest.mark.slow
def test_killed_workers_lose_nothing(tmp_path, environment):
    """In twenty runs, at any time; the last worker too: the run waits for another."""
    options = {"t_end": 600.0, "save_every": 1500}
    plain, chance, disturbed, bereft = simulate(**options), random.Random(11), 0, 0
    with cluster(tmp_path, environment, 2) as team, team.client() as client:

        def kill(over, killed):
            if over.wait(chance.uniform(0.0, 3.0)):
                return
            killed += [team.kill(0) for _ in range(2 if chance.random() < 0.3 else 1)]
            while len(team.workers) < 2:
                team.join()

        while disturbed < 20:
            over, killed = threading.Event(), []
            killer = threading.Thread(target=kill, args=(over, killed))
            killer.start()
            try:
                run = simulate(executor=client, **options)
            finally:
                over.set()
                killer.join()
            assert not differences(run, plain)
            disturbed, bereft = disturbed + bool(killed), bereft + (len(killed) == 2)
            client.wait_for_workers(2, timeout=600)
    assert bereft >= 3, "no run has lost all its workers"


@pytest.mark.slow
def test_a_killed_scheduler_is_a_clear_error_and_the_checkpoint_goes_on(tmp_path, environment):
    options = {"t_end": 3000.0, "save_every": 7000}
    file = da.Checkpoint(tmp_path / "run.ckpt", seconds=0.1)
    with cluster(tmp_path, environment, 1) as team:
        client = team.client()

        def kill():
            while not file.path.exists():
                time.sleep(0.05)
            team.scheduler.kill()

        threading.Thread(target=kill).start()
        with pytest.raises(LostError, match=r"scheduler has ended.*The same call goes on"):
            simulate(executor=client, checkpoint=file, **options)
        client.close(timeout=1)
    assert not differences(simulate(checkpoint=file, **options), simulate(**options))


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_on_dask(tmp_path, environment):
    options = {"t_end": 3000.0, "save_every": 7000}
    file = da.Checkpoint(tmp_path / "run.ckpt", seconds=0.1)

    def left(dask_scheduler):
        return [key for key in dask_scheduler.tasks if key.startswith("dalembert")]

    with cluster(tmp_path, environment, 1) as team, team.client() as client:

        def press():
            while not file.path.exists():
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press).start()
        with pytest.raises(da.Interrupted, match="The same call goes on"):
            simulate(executor=client, checkpoint=file, **options)
        began = time.monotonic()
        while client.run_on_scheduler(left):
            assert time.monotonic() - began < 60
            time.sleep(0.1)
        run = simulate(executor=client, checkpoint=file, **options)
    assert not differences(run, simulate(**options))


PRELOADS = {
    "cannot import dalembert": "import sys\nsys.modules['dalembert'] = None\n",
    r"dalembert \(.*9.9.* there\)": "import dalembert\ndalembert.__version__ = '9.9'\n",
    r"jax \(.*0.0.1.* there\)": "import jax\njax.__version__ = '0.0.1'\n",
    r"device_kind \(.*abacus.* there\)": (
        "from types import SimpleNamespace\nimport jax\n"
        "jax.local_devices = lambda **_: [SimpleNamespace(device_kind='abacus')]\n"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("why", PRELOADS)
def test_a_worker_of_dask_that_would_compute_otherwise_is_refused(why, tmp_path, environment):
    other = tmp_path / "other.py"
    other.write_text(PRELOADS[why])
    with cluster(tmp_path, environment, 0) as team, team.client() as client:
        team.join(preload=other)
        with pytest.raises(remote.RefusedWorkerError, match=rf"worker .*:\d+ .*{why}"):
            simulate(executor=client)


@pytest.mark.slow
def test_a_worker_of_dask_with_other_sources_is_refused(tmp_path, environment):
    copy = tmp_path / "elsewhere" / "dalembert"
    shutil.copytree(Path(da.__file__).parent, copy)
    with open(copy / "sizes.py", "a") as file:
        file.write("# changed\n")
    other = environment | {"PYTHONPATH": f"{copy.parent}{os.pathsep}{environment['PYTHONPATH']}"}
    with cluster(tmp_path, other, 0) as team, team.client() as client:
        team.join()
        with pytest.raises(remote.RefusedWorkerError, match=r"worker .*:\d+ .*sources \("):
            simulate(executor=client)


@pytest.mark.slow
def test_a_thousand_blocks_of_a_millisecond_do_not_choke(tmp_path, environment):
    options = {"paths": 1000 * 64, "t_end": 1.0, "save_every": 10}
    simulate(**options)
    began = time.perf_counter()
    plain = simulate(**options)
    alone = time.perf_counter() - began
    assert plain.provenance["block_paths"] == 64
    tasks = []
    with cluster(tmp_path, environment, 1) as team, team.client() as client:
        pool = client.get_executor()
        submit = pool.submit
        pool.submit = lambda *args, **given: tasks.append(args) or submit(*args, **given)
        simulate(executor=pool, **(options | {"seed": 1}))
        tasks.clear()
        began = time.perf_counter()
        assert not differences(simulate(executor=pool, **options), plain)
        seconds = time.perf_counter() - began
    assert len(tasks) < 100
    assert seconds < 5 * alone + 5


@pytest.mark.slow
def test_a_broken_pool_is_a_clear_error(undisturbed, tmp_path, environment, monkeypatch):
    for name in ("PYTHONPATH", "JAX_COMPILATION_CACHE_DIR"):
        monkeypatch.setenv(name, environment[name])
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        assert not differences(simulate(executor=pool), undisturbed)
        (worker,) = pool._processes
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(LostError, match="takes no more tasks") as caught:
            simulate(executor=pool, checkpoint=tmp_path / "run.ckpt")
    assert isinstance(caught.value.__cause__.__cause__, BrokenProcessPool)
    assert not differences(simulate(checkpoint=tmp_path / "run.ckpt"), undisturbed)


@pytest.mark.slow
def test_a_pool_of_loky_gives_the_same_bits(undisturbed, environment):
    loky = pytest.importorskip("loky")
    paths = 70_000
    starts = tuple(np.linspace(-1.0, 1.0, 2 * paths).reshape(2, paths, 1))
    options = {"dt": 0.1, "t_end": 1.0, "paths": paths, "progress": False}
    large = da.systems.damped_kubo(), da.heun(), starts
    with loky.ProcessPoolExecutor(2, env=dict(environment)) as pool:
        assert not differences(simulate(executor=pool), undisturbed)
        with jax.default_matmul_precision("highest"):
            assert not differences(simulate(executor=pool, workers=1), undisturbed)
        run = da.simulate(*large, executor=pool, keep="final", **options)
    assert not differences(run, da.simulate(*large, keep="final", **options))


SCRIPT = """
import dalembert as da
import jax.numpy as jnp

def here(q, p, params):
    return jnp.sin(q[0]) * scale

scale = 3.0
run = da.simulate(
    da.systems.damped_kubo(), da.midpoint(), ([1.0], [0.0]), dt=0.1, t_end=5.0, paths=500,
    observe={"here": here},
)
print(run.mean["here"][-1].hex(), run.provenance["processes"], run.provenance["devices"])
"""


@pytest.mark.slow
def test_the_program_runs_a_script_on_dask(tmp_path, environment):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def said(*options):
        command = [sys.executable, "-m", "dalembert", "run", str(script), *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[0]

    with cluster(tmp_path, environment, 1) as team, team.client() as client:
        assert said("--dask", client.scheduler.address) == said()
        prepared = client.run(lambda: remote._ready.cache_info().misses)
        assert list(prepared.values()) == [1], "the worker has run the script's simulation"


LONG_SCRIPT = """
import sys
import dalembert as da

run = da.simulate(
    da.systems.damped_kubo(), da.midpoint(), ([1.0], [0.0]), dt=0.1, t_end=1500.0, paths=100_000,
    save_every=5000, keep="final", checkpoint=da.Checkpoint(sys.argv[0] + ".ckpt", seconds=0.1),
)
run.save(sys.argv[0] + ".npz")
"""


def long_program(folder, environment, *options):
    """The program with a script that takes long, and its checkpoint."""
    folder.mkdir(exist_ok=True)
    script = folder / "script.py"
    script.write_text(LONG_SCRIPT)
    command = [sys.executable, "-m", "dalembert", "run", str(script), *options]
    program = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    return program, folder / "script.py.ckpt"


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_program_says_that_its_scheduler_has_died(how, tmp_path, environment):
    with cluster(tmp_path, environment, 1) as team, team.client() as client:
        there = ("--dask", client.scheduler.address)
        program, file = long_program(tmp_path / "there", environment, *there)
        interrupted_run.wait_for(file)
        team.scheduler.send_signal(how)
        _, said = program.communicate(timeout=600)
    assert program.returncode == 1
    assert re.fullmatch(r"error: the executor has given up: its scheduler has ended.*\n", said), (
        said
    )
    assert f"saved in {file}" in said


@pytest.mark.slow
def test_the_program_on_dask_saves_itself_when_it_is_told_to_end(tmp_path, environment):
    def end(program):
        _, said = program.communicate(timeout=600)
        return program.returncode, said

    with cluster(tmp_path, environment, 1) as team, team.client() as client:
        there = ("--dask", client.scheduler.address)
        program, file = long_program(tmp_path / "there", environment, *there)
        interrupted_run.wait_for(file)
        program.terminate()
        status, said = end(program)
        assert status == -signal.SIGTERM
        assert re.fullmatch(r"stopped after .*saved in .*goes on from there\.\n", said), said
        program, _ = long_program(tmp_path / "there", environment, *there)
        assert end(program) == (0, "")
    program, _ = long_program(tmp_path / "here", environment)
    assert end(program) == (0, "")
    runs = [da.load(tmp_path / where / "script.py.npz") for where in ("there", "here")]
    assert not differences(*runs) and runs[0].provenance["earlier_seconds"] > 0


STUDY = """
import dalembert as da
from dalembert.studies import Case, Part, Study

cases = (Case("heun", 0.1), Case("midpoint", 0.1))
parts = tuple(
    Part(name, cases, ([2.0], [0.0]), 20.0, paths, 1.0)
    for name, paths in (("one", 1), ("many", 300))
)
study = Study("own", "Own", "Text.", da.systems.damped_kubo(), parts)
"""


def numbers(path):
    """All arrays of a study, as bytes."""
    found = load_result(path)
    arrays = {key: run.to_record()[1] for key, run in found.runs.items()}
    return {(key, name): x.tobytes() for key, of in arrays.items() for name, x in of.items()}


@pytest.mark.slow
def test_studies_run_on_dask_with_the_same_bits(tmp_path, environment):
    """Those of the paper and one's own, also single paths, which run beside the others."""
    script = tmp_path / "study.py"
    script.write_text(STUDY)
    given = ("--method", "heun", "--method", "midpoint", "--paths", "2", "--t-end", "50")
    studies = {"own": ["run", str(script)], "lorentz": ["reproduce", "lorentz", *given]}

    def run(name, where, *options):
        out = tmp_path / where
        command = [sys.executable, "-m", "dalembert", *studies[name], "--out", str(out), *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert (out / f"{name}.npz").exists(), done.stdout + done.stderr
        return done.returncode, numbers(out / f"{name}.npz")

    with cluster(tmp_path, environment, 1) as team, team.client() as client:
        there = ("there", "--dask", client.scheduler.address)
        assert run("own", *there) == run("own", "here")
        prepared = client.run(lambda: remote._ready.cache_info().misses)
        assert list(prepared.values()) == [4], "the worker has run every case"
        team.join()
        client.wait_for_workers(2)
        assert run("lorentz", *there) == run("lorentz", "here")
