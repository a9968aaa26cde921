"""The command-line program, as a person would use it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dalembert as da
from dalembert.cli import main
from dalembert.commands import app
from dalembert.speeds import PROBLEMS
from dalembert.terminal import in_ascii
from tiers import tiered

ROOT = Path(__file__).parents[2]


def call(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_list_shows_every_method_and_system():
    result = call("list")
    assert result.exit_code == 0
    for name in (*da.METHODS, *da.SYSTEMS):
        assert re.search(rf"\b{name}\b", result.output), name


def test_certify_one_and_all():
    one = call("certify", "dirk")
    assert one.exit_code == 0 and "Lagrange–d'Alembert structure: kept" in one.output
    every = call("certify")
    assert every.exit_code == 0
    assert every.output.count("Certificate of") == len(da.METHODS)
    assert "structure: not kept" in every.output or "NOT" in every.output.upper()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("certify", "nonsense"), "no method 'nonsense': there are midpoint"),
        (("certify", "midpiont"), "did you mean 'midpoint'? There are midpoint, "),
        (("certify", "kubo.py"), "kubo.py is a system, and a method is needed"),
        (("certify", "van-der-pol"), "`dalembert diagnose van-der-pol` is about systems"),
        (("explain", "nonsense"), "no system 'nonsense': there are damped_kubo"),
        (("explain", "midpoint", "pendulum"), "midpoint is a method, and a system is needed"),
        (("explain", "two_noise", "srkw2"), "srkw2 takes at most 1 noise"),
        (("diagnose", "missing.py"), "no such file: missing.py"),
    ],
)
def test_mistakes_are_explained(arguments, message):
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_bench_times_a_problem():
    result = call("bench", "van-der-pol", "--seconds", "0")
    assert result.exit_code == 0, result.output
    rate = float(re.search(r"midpoint .* (\S+) path-steps/s, cpu", result.output)[1])
    assert rate > 1000 and "failed" not in result.output
    assert "there are damped_kubo" in call("bench", "nonsense").output


@pytest.mark.slow
def test_no_problem_of_bench_loses_paths():
    result = call("bench", "--seconds", "0.2")
    assert result.output.count("path-steps/s") == len(PROBLEMS) and "failed" not in result.output


def test_explain():
    result = call("explain", "lorentz", "dirk")
    assert result.exit_code == 0 and "equations to solve: 2 + 2" in result.output


@pytest.mark.slow
def test_diagnose_a_file():
    result = call("diagnose", str(ROOT / "examples" / "own_system.py"))
    assert result.exit_code == 0
    assert "Diagnosis of double well" in result.output and "Recommendation" in result.output


def test_files_that_define_no_system_are_refused(tmp_path):
    for text, message in (("x = 1", "must define `system`"), ("1/0", "ZeroDivisionError")):
        path = tmp_path / "own.py"
        path.write_text(text)
        result = call("diagnose", str(path))
        assert result.exit_code == 2 and message in " ".join(result.output.split())


def test_a_script_without_a_study_is_said_to_be_one(tmp_path):
    file = tmp_path / "script.py"
    file.write_text("studie = 1\n")
    result = call("run", str(file))
    assert result.exit_code == 0 and "defines no `study`" in " ".join(result.output.split())


def test_files_may_import_their_neighbours(tmp_path):
    (tmp_path / "stiffness.py").write_text("k = 2.0")
    text = "import dalembert as da; from stiffness import k\n"
    text += "system = da.System(H=lambda q, p: p[0]**2 / 2 + k * q[0]**2, dim=1, name='own')"
    (tmp_path / "own.py").write_text(text)
    before = list(sys.path)
    result = call("explain", str(tmp_path / "own.py"))
    assert result.exit_code == 0 and "midpoint on own" in result.output
    assert sys.path == before
    del sys.modules["stiffness"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import dalembert as da\nda.System(H=lambda q, p: q[1], dim=1)",
            "line 2: ValueError: H takes",
        ),
        ("def f():\n    1 / 0\n\nf()", "line 2: ZeroDivisionError: division by zero"),
        ("import sys\n\nsys.exit(3)", "line 3: SystemExit: 3"),
        ("x = (", "SyntaxError: '(' was never closed"),
    ],
)
def test_files_that_fail_are_reported_with_the_line(tmp_path, text, message):
    path = tmp_path / "own.py"
    path.write_text(text)
    result = call("diagnose", str(path))
    assert result.exit_code == 2
    assert message in " ".join(result.output.split()) and "Traceback" not in result.output


def test_a_system_that_is_finite_nowhere_is_reported(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "import dalembert as da, jax.numpy as jnp\n"
        "system = da.System(H=lambda q, p: jnp.sqrt(-1 - p[0] ** 2), dim=1)"
    )
    result = call("diagnose", str(path))
    assert result.exit_code == 2
    assert "not finite at any" in result.output and "In Python: da.diagnose" in result.output


def test_what_is_missing_is_named_with_a_command(monkeypatch):
    monkeypatch.delitem(sys.modules, "dalembert.commands")
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r"needs typer: install it with  pip install '\.\[cli\]'"):
        main()


def test_nothing_is_cut_or_wrapped_at_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert "..." not in call("--help").output.partition("Commands")[2]
    rows = call("list").output.splitlines()
    assert [row.split()[0] for row in rows[1 : len(da.METHODS) + 1]] == list(da.METHODS)
    assert any(re.search(r"srkw2 +weak +4 \+ 2 +structure", row) for row in rows)


def program(*arguments, **variables):
    """The program as a process of its own, in an environment of its own."""
    environment = os.environ | variables
    command = [sys.executable, "-m", "dalembert", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, timeout=300)


@pytest.mark.parametrize("encoding", tiered(["latin-1", "ascii"], fast=["latin-1"]))
def test_letters_that_a_terminal_does_not_know_are_written_in_others(tmp_path, encoding):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "print('Δt ≤ 1 – Störmer, 量 x²')\n"
        "print('ε ± 1', file=sys.stderr)\n"
        "raise ValueError('Δt = 0 → ∞')\n"
    )
    done = program("run", str(script), PYTHONIOENCODING=encoding)
    output, errors = done.stdout.decode(encoding), done.stderr.decode(encoding)
    assert done.returncode == 2 and "Traceback" not in errors
    assert "dt <= 1 - St" in output and ("Störmer" in output) == (encoding == "latin-1")
    assert "? x" in output and "dt = 0 -> ?" in errors


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
@pytest.mark.parametrize("command", ["list", "certify", "diagnose two_noise", "--help"])
def test_every_command_prints_on_every_terminal(command, encoding):
    done = program(*command.split(), PYTHONIOENCODING=encoding, COLUMNS="20")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode(encoding)


def test_what_is_printed_in_ascii_can_be_read():
    assert in_ascii("Lagrange–d’Alembert, Δt = 10⁻³ ± ½, λ ≥ 0, µ, É") == (
        "Lagrange-d'Alembert, dt = 10-3 +- 1/2, lambda >= 0, mu, E"
    )


def test_version():
    assert call("--version").output.startswith(f"dalembert {da.__version__}")


@pytest.mark.parametrize("page", ["README.md", "docs/start.md"])
def test_the_first_example_is_shown(page):
    code = (ROOT / "examples" / "first.py").read_text().partition('"""\n\n')[2]
    assert code in (ROOT / page).read_text()


def test_importing_has_no_side_effects():
    """No x64 switch, no device started, no output, and the theory is not loaded."""
    program = (
        "import jax, sys, dalembert;"
        "from jax._src import xla_bridge;"
        "assert not jax.config.jax_enable_x64;"
        "assert not xla_bridge._backends;"
        "assert 'dalembert.theory' not in sys.modules;"
        "assert 'matplotlib' not in sys.modules and 'typer' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
