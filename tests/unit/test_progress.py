"""The line of progress: what it says, where it is shown, and that nothing of it stays behind."""

import fcntl
import io
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
import types

import numpy as np
import pytest

import dalembert as da
from dalembert.ensemble import blocks, progress
from dalembert.ensemble.progress import ProgressBar, tell, telling
from dalembert.methods.coefficients import text_width

KUBO = da.systems.damped_kubo()
START = ([2.0], [0.0])


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True

    @property
    def lines(self):
        """What was drawn, line over line."""
        return [text.rstrip() for text in self.getvalue().split("\r") if text.strip()]


def screen(text):
    """What a terminal shows in the end: a carriage return goes back, the next text goes over."""
    shown, column = [], 0
    for letter in text:
        if letter == "\r":
            column = 0
            continue
        shown[column : column + 1] = [letter]
        column += 1
    return "".join(shown).rstrip()


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


@pytest.fixture
def shown_on(monkeypatch):
    """Give the package a standard error of its own; pytest puts back that of the interpreter."""

    def give(stream, **modules):
        names = types.SimpleNamespace(stderr=stream, modules=modules)
        monkeypatch.setattr(progress, "sys", names)
        return stream

    return give


@pytest.fixture
def terminal(shown_on, monkeypatch):
    terminal = shown_on(Terminal())
    monkeypatch.setattr(progress, "_columns", lambda: 120)
    return terminal


@pytest.fixture
def at_once(monkeypatch):
    """Lines from the beginning and as often as possible."""
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "INTERVAL", 0.0)


def bar(total=4000, done=0, title="midpoint on kubo", shown=True):
    return ProgressBar(total, done, title, shown)


def test_the_line_says_share_rate_time_left_and_failures(clock, terminal):
    it = bar()
    it.add(1000)
    clock.now += 10
    it.draw()
    it.failed = 1234
    it.add(2000)
    clock.now += 5
    it.draw()
    first, second = terminal.lines
    assert first == (
        "midpoint on kubo |██████                  |  25% of 4e+03 path-steps, 1.00e+02/s, "
        "0:30 left"
    )
    assert second == (
        "midpoint on kubo |██████████████████      |  75% of 4e+03 path-steps, 2.00e+02/s, "
        "0:05 left, 1,234 failed"
    )


def test_the_line_says_how_many_workers_an_executor_has(clock, terminal):
    it = bar()
    for number in (1200, 1):
        it.workers = number
        clock.now += 10
        it.draw()
    first, second = terminal.lines
    assert first.endswith("? left, 1,200 workers") and second.rstrip().endswith("? left, 1 worker")


def test_the_rate_is_that_of_this_session(clock, terminal):
    """A run that goes on from a checkpoint begins in the middle, and was not faster for that."""
    it = bar(done=2000)
    it.add(1000)
    clock.now += 10
    it.draw()
    assert "75%" in terminal.lines[0] and "1.00e+02/s, 0:10 left" in terminal.lines[0]


def test_the_line_says_what_delays_the_first_step(clock, terminal):
    it = bar()
    it.busy = "compiling (XLA)"
    clock.now += 7
    it.draw()
    it.busy = ""
    clock.now += 1
    it.draw()
    first, second = terminal.lines
    assert first == "midpoint on kubo: compiling (XLA), 7 s" and second.startswith("midpoint on")
    assert "path-steps" in second
    it.close()
    assert screen(terminal.getvalue()) == ""


def test_a_line_of_its_own_for_what_takes_long(terminal, clock):
    with telling("midpoint on kubo", True):
        clock.now += 3
        wait_for(lambda: terminal.lines)
    assert terminal.lines[0] == "midpoint on kubo: tracing its functions, 3 s"
    assert screen(terminal.getvalue()) == ""
    shown = terminal.getvalue()
    with telling("midpoint on kubo", False):
        clock.now += 3
        time.sleep(3 * progress.TICK)
    assert terminal.getvalue() == shown, "not where it is not wanted"


def test_nothing_is_known_before_the_first_step(clock, terminal):
    it = bar()
    clock.now += 3
    it.draw()
    assert "0% of 4e+03 path-steps, 0.00e+00/s, ? left" in terminal.lines[0]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0:00"), (59.6, "1:00"), (3599, "59:59"), (100000, "27:46:40")]
)
def test_durations(seconds, text):
    assert progress._duration(seconds) == text


def test_what_others_have_done_counts_and_nothing_counts_twice():
    it = bar()
    it.add(500)
    it.reach(2000)
    it.reach(1000)
    assert it._done == 2000
    it.add(3000)
    assert it._done == 4000


def test_pipes_and_files_have_a_line_a_minute(clock, shown_on):
    pipe = shown_on(io.StringIO())
    it = bar()
    it.busy = "compiling (XLA)"
    clock.now += 59
    it.draw()
    assert pipe.getvalue() == "", "short runs leave nothing in logs"
    clock.now += 2
    it.draw()
    it.busy = ""
    it.add(1000)
    for _ in range(80):
        clock.now += 1
        it.draw()
    it.close()
    assert pipe.getvalue() == (
        "midpoint on kubo: compiling (XLA), 61 s\n"
        "midpoint on kubo: 25% of 4e+03 path-steps, 1.67e+01/s, 3:00 left\n"
    )
    pipe.truncate(0)
    it = bar(shown=False)
    clock.now += 100
    it.draw()
    assert pipe.getvalue() == ""


def test_what_is_done_within_a_line_is_said_in_it(terminal, clock):
    tell("nobody listens")
    with telling("work", True, "beginning"):
        with telling("midpoint on kubo", True):
            tell("timing midpoint")
            clock.now += 3
            wait_for(lambda: terminal.lines)
        assert progress._line_now.get() is not None
    assert terminal.lines[0] == "work: timing midpoint, 3 s"
    assert progress._line_now.get() is None and screen(terminal.getvalue()) == ""


@pytest.mark.slow
def test_measured_orders_say_what_they_do(terminal, at_once, monkeypatch):
    monkeypatch.setattr(progress, "TICK", 1e-4)
    pendulum, start = da.systems.pendulum(), ([1.0], [0.5])
    options = {"t_end": 1.0, "steps": (4, 8, 16), "paths": 2000, "refine": 16}
    da.strong_order(pendulum, da.heun(), start, **options)
    assert "strong order of heun on pendulum: heun with 16 steps, " in terminal.getvalue()
    assert "strong order of heun on pendulum: midpoint with 256 steps, " in terminal.getvalue()
    assert screen(terminal.getvalue()) == ""
    shown = terminal.getvalue()
    da.strong_order(pendulum, da.heun(), start, **options, progress=False)
    assert terminal.getvalue() == shown
    da.weak_order(pendulum, da.heun(), start, t_end=1.0, steps=(4, 6, 8), exact=-0.5)
    assert "weak order of heun on pendulum: heun with 8 steps, " in terminal.getvalue()


def ipython(shell):
    """The module IPython, with a shell that is running."""
    module = types.ModuleType("IPython")
    module.get_ipython = lambda: shell
    return module


def test_what_no_person_looks_at_is_not_watched(clock, shown_on):
    """Not even where IPython has been imported, or runs without a notebook."""
    for shell in (None, types.SimpleNamespace()):
        page = shown_on(io.StringIO(), IPython=ipython(shell))
        it = bar()
        it.add(1000)
        clock.now += 10
        it.draw()
        it.close()
        assert page.getvalue() == ""


def test_notebooks_are_watched(clock, shown_on):
    page = shown_on(io.StringIO(), IPython=ipython(types.SimpleNamespace(kernel=object())))
    it = bar()
    it.add(1000)
    clock.now += 10
    it.draw()
    assert "25% of" in page.getvalue()
    it.close()
    assert screen(page.getvalue()) == ""


def test_nothing_is_shown_where_it_is_not_wanted(clock, terminal):
    it = bar(shown=False)
    clock.now += 10
    it.draw()
    it.close()
    assert terminal.getvalue() == ""


def test_short_runs_need_no_line_and_long_ones_not_too_many(clock, terminal):
    it = bar()
    for _ in range(9):
        clock.now += 0.1
        it.draw()
    it.close()
    assert terminal.getvalue() == ""
    for _ in range(100):
        clock.now += 0.03
        it.draw()
    assert 5 <= len(terminal.lines) <= 20


def test_a_shorter_line_leaves_nothing_of_a_longer_one(clock, terminal):
    it = bar()
    it.failed = 10**6
    clock.now += 10
    it.draw()
    it.failed = 0
    clock.now += 10
    it.draw()
    assert screen(terminal.getvalue()) == terminal.lines[-1]
    it.close()
    assert screen(terminal.getvalue()) == ""
    it.close()
    assert terminal.getvalue().count("\r") == 4, "closed twice, wiped once"


@pytest.mark.parametrize("columns", [1, 20, 50, 80, 100, 300])
@pytest.mark.parametrize("title", ["e1 on x", "a long name " * 20])
def test_a_line_never_wraps(clock, terminal, monkeypatch, columns, title):
    monkeypatch.setattr(progress, "_columns", lambda: columns)
    it = bar(title=title)
    it.add(3000)
    it.failed = 99
    clock.now += 10
    it.draw()
    line = terminal.getvalue().removeprefix("\r")
    assert len(line) < max(columns, 1)
    if columns >= 80:
        assert "75% of" in line and "left, 99 failed" in line and "█" in line
    assert (title in line) == (columns >= 80 and title == "e1 on x")


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (60, "75% of 4e+03 path-steps, 3.00e+02/s, 0:03 left, 99 failed"),
        (50, "75%, 0:03 left, 99 failed"),
        (20, "75%, 0:03 left"),
        (8, "75%"),
        (3, ""),
    ],
)
def test_a_narrow_terminal_is_told_less_in_whole_words(clock, terminal, monkeypatch, columns, line):
    monkeypatch.setattr(progress, "_columns", lambda: columns)
    it = bar()
    it.add(3000)
    it.failed = 99
    clock.now += 10
    it.draw()
    assert terminal.getvalue() == "\r" + line


def test_a_terminal_that_becomes_narrow_is_not_written_beyond(clock, terminal, monkeypatch):
    it = bar()
    clock.now += 10
    it.draw()
    assert len(terminal.lines[0]) > 60
    for finish in (it.draw, it.close):
        monkeypatch.setattr(progress, "_columns", lambda: 20)
        terminal.truncate(0)
        clock.now += 10
        finish()
        assert all(len(text.strip("\0")) < 20 for text in terminal.getvalue().split("\r"))
        it._width = 70


@pytest.mark.parametrize(("name", "width"), [("量子", 4), ("e\u0301", 1), ("a\nb\x1b", 4)])
def test_wide_combining_and_control_letters_in_a_title(clock, terminal, monkeypatch, name, width):
    monkeypatch.setattr(progress, "_columns", lambda: 90)
    it = bar(title=name)
    it.add(1000)
    clock.now += 10
    it.draw()
    line = terminal.getvalue().removeprefix("\r")
    assert line.isprintable() or "\u0301" in line
    assert "\n" not in line and "\x1b" not in line
    assert text_width(line.partition(" |")[0]) == width and text_width(line) < 90


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_terminal_that_does_not_know_every_letter(clock, shown_on, monkeypatch, encoding):
    monkeypatch.setattr(progress, "_columns", lambda: 100)
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    stream.isatty = lambda: True
    shown_on(stream)
    it = bar(title="é on Δ")
    it.add(2000)
    clock.now += 10
    it.draw()
    line = raw.getvalue().decode(encoding).removeprefix("\r")
    assert "|############            |  50% of" in line and len(line) < 100
    assert line.startswith("? on ? |" if encoding == "ascii" else "é on ? |")
    it.close()
    assert screen(raw.getvalue().decode(encoding)) == ""


def test_a_terminal_that_goes_away_does_not_stop_the_run(clock, shown_on):
    class Gone(Terminal):
        def flush(self):
            raise OSError(5, "Input/output error")

    gone = shown_on(Gone())
    it = bar()
    clock.now += 10
    it.draw()
    clock.now += 10
    it.draw()
    assert len(gone.lines) == 1, "it is not tried again"
    it.close()


def test_no_standard_error_at_all(clock, shown_on):
    shown_on(None)
    it = bar()
    clock.now += 10
    it.draw()
    it.close()
    assert progress.sys.stderr is None, "nothing was put in its place"


def simulate(**options):
    settings = {"dt": 0.05, "t_end": 5.0, "paths": 3 * 2048, "save_every": 10} | options
    return da.simulate(KUBO, da.midpoint(), START, **settings)


def wait_for(is_so):
    """Wait for another thread, however slow the machine is."""
    deadline = time.monotonic() + 60
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)


def shares(lines):
    return [int(line.partition("%")[0].rpartition(" ")[2]) for line in lines]


def test_a_run_draws_its_line_and_wipes_it(terminal, at_once, monkeypatch):
    monkeypatch.setattr(blocks, "LEG_SECONDS", 0.0)
    run = simulate()
    assert np.isfinite(run.mean["energy"]).all()
    lines = [line for line in terminal.lines if "path-steps" in line]
    assert lines[0].startswith("midpoint on damped_kubo |")
    assert "of 6.14e+05 path-steps" in lines[-1]
    found = shares(lines)
    assert found == sorted(found) and found[-1] == 100
    assert screen(terminal.getvalue()) == ""


def test_a_run_that_is_short_or_told_so_draws_nothing(terminal, clock, monkeypatch):
    simulate()
    monkeypatch.setattr(progress, "DELAY", -1.0)
    simulate(progress=False)
    assert terminal.getvalue() == ""


def test_ctrl_c_wipes_the_line(terminal, at_once, monkeypatch):
    draw = ProgressBar.draw

    def interrupt(it):
        draw(it)
        if any("path-steps" in line for line in terminal.lines):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ProgressBar, "draw", interrupt)
    with pytest.raises(da.Interrupted, match=r"stopped after \d+% of the path-steps; nothing"):
        simulate(paths=10 * 2048)
    assert terminal.lines and screen(terminal.getvalue()) == ""


def test_a_run_says_that_it_compiles_and_with_what(terminal, at_once, monkeypatch):
    """Also while threads compile: the line is drawn by the thread that waits for them."""
    run_, taken = blocks.observe, []

    def observe(*args):
        began = time.perf_counter()
        wait_for(lambda: "compiling" in terminal.getvalue())
        taken.append(time.perf_counter() - began)
        return run_(*args)

    monkeypatch.setattr(blocks, "observe", observe)
    run = simulate(paths=64, t_end=1.0)
    code = run.provenance["code"]
    assert any(f"damped_kubo: compiling ({code})" in line for line in terminal.lines)
    assert screen(terminal.getvalue()) == ""
    of = run.provenance
    assert sum(taken) <= of["compile_seconds"] < of["seconds"]
    steps = 64 * 20 / (of["seconds"] - of["compile_seconds"])
    assert of["path_steps_per_second"] == pytest.approx(steps)
    assert f"({of['compile_seconds']:.3g} s of it to compile)" in repr(run)


def test_what_earlier_calls_took_is_told_apart(tmp_path):
    first, both = (
        simulate(paths=64, t_end=t_end, checkpoint=tmp_path / "a.ckpt") for t_end in (1.0, 2.0)
    )
    assert "earlier calls" not in repr(first)
    earlier = both.provenance["earlier_seconds"]
    assert 0 < earlier <= first.provenance["seconds"] and earlier < both.provenance["seconds"]
    seconds = both.provenance["seconds"]
    said = repr(both).partition("time: ")[2]
    assert said.startswith(f"{seconds - earlier:.3g} s (")
    assert f" to compile), {seconds:.3g} s with earlier calls, " in said
    compiling = float(said.partition("(")[2].partition(" s of it")[0])
    assert 0 < compiling <= seconds - earlier


def test_a_stopped_path_says_how_far_it_is(at_once, monkeypatch):
    monkeypatch.setattr(blocks, "LEG_SECONDS", 0.0)
    monkeypatch.setattr(blocks, "FIRST_LEG", 0)
    add, pressed = ProgressBar.add, []

    def stop_halfway(it, count):
        add(it, count)
        # Once: what is pressed while the run is saying farewell ends that.
        if it.share >= 0.5 and not pressed:
            pressed.append(it.share)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ProgressBar, "add", stop_halfway)
    with pytest.raises(da.Interrupted) as stopped:
        simulate(paths=1, t_end=100.0)
    text = str(stopped.value)
    assert text.startswith("stopped at t = ") and "of 100; nothing was saved" in text
    assert 50 <= float(text.split()[4]) <= 100


QUARTIC = da.System(
    H=lambda q, p: p[0] ** 2 / 2 + q[0] ** 4 / 4, h=[lambda q, p: 0.1 * q[0]], dim=1
)


def test_failures_are_shown_while_their_block_is_still_running(terminal, at_once, monkeypatch):
    monkeypatch.setattr(blocks, "LEG_SECONDS", 0.0)
    monkeypatch.setattr(blocks, "FIRST_LEG", 0)
    add = ProgressBar.add

    def add_slowly(it, count):
        add(it, count)
        drawn = len(terminal.lines)
        wait_for(lambda: len(terminal.lines) > drawn or it.share > 0.2)

    monkeypatch.setattr(ProgressBar, "add", add_slowly)
    q0 = np.array([[0.1], [50.0], [0.2], [60.0]])
    with pytest.warns(RuntimeWarning, match="2 of 4 paths failed"):
        da.simulate(QUARTIC, da.heun(), (q0, 0 * q0), dt=0.1, t_end=100.0, paths=4, save_every=20)
    failing = [line for line in terminal.lines if line.endswith("2 failed")]
    assert len(failing) > 2 and min(shares(failing)) < 90


def open_terminal(columns):
    """Both ends of a real pseudo-terminal of a given width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return ours, theirs


def read_all(end):
    """What was written to a pseudo-terminal whose other end is closed."""
    text = b""
    try:
        while part := os.read(end, 65536):
            text += part
    except OSError:
        pass  # Linux reports the closed end as an error.
    os.close(end)
    return text.decode()


def test_the_width_is_that_of_the_terminal(clock, shown_on):
    ours, theirs = open_terminal(72)
    with open(theirs, "w", encoding="utf-8") as stream:
        shown_on(stream)
        assert progress._columns() == 72
        it = bar(title="a method with a long name on a system")
        it.add(1000)
        clock.now += 10
        it.draw()
        it.close()
    line = read_all(ours).split("\r")[1]
    assert len(line) <= 71 and line.endswith("left") and "25%" in line
    shown_on(io.StringIO())
    assert progress._columns() == 80, "where there is no terminal to ask"


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [False, True], ids=["to its end", "Ctrl-C"])
def test_a_program_in_a_real_terminal(interrupted):
    """Its standard error is a pseudo-terminal, its standard output a pipe."""
    program = (
        "import dalembert as da\n"
        "try:\n"
        "    da.simulate(da.systems.damped_kubo(), da.midpoint(), ([2.0], [0.0]), dt=0.05,\n"
        f"                t_end={2000.0 if interrupted else 20.0}, paths=200_000)\n"
        "except da.Interrupted as stop:\n"
        "    print(stop)\n"
    )
    ours, theirs = open_terminal(100)
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    text = ""
    while interrupted and not ("left" in text and "? left" not in text[-200:]):
        text += os.read(ours, 65536).decode()
    if interrupted:
        child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=300)
    text += read_all(ours)
    assert child.returncode == 0
    assert (b"stopped after" in output) == interrupted
    lines = [line for line in text.split("\r") if line.strip()]
    # Where the machine is busy, compiling is said too.
    known = ("midpoint on damped_kubo |", "midpoint on damped_kubo: ")
    assert all(line.startswith(known) and len(line) < 100 for line in lines)
    assert screen(text) == ""
