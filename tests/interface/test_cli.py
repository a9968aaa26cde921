"""The command-line program, as a person would use it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dalembert as da
from dalembert.commands import app

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
    assert every.exit_code == 0 and every.output.count("Certificate of") == len(da.METHODS)
    assert "structure: not kept" in every.output or "NOT" in every.output.upper()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("certify", "nonsense"), "no method 'nonsense'; there are midpoint"),
        (("explain", "nonsense"), "no system 'nonsense'; there are damped_kubo"),
        (("explain", "two_noise", "srkw2"), "srkw2 takes at most 1 noise"),
        (("diagnose", "missing.py"), "no such file: missing.py"),
    ],
)
def test_mistakes_are_explained(arguments, message):
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_explain():
    result = call("explain", "lorentz", "dirk")
    assert result.exit_code == 0 and "equations to solve: 2 + 2" in result.output


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


def test_version():
    assert call("--version").output.startswith(f"dalembert {da.__version__}")


def test_the_readme_shows_the_first_example():
    code = (ROOT / "examples" / "first.py").read_text().partition('"""\n\n')[2]
    assert code in (ROOT / "README.md").read_text()


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
