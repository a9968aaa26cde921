"""Trajectories for the viewers of molecular dynamics, read back by ASE."""

import sys
import warnings
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import xarray

import dalembert as da
from dalembert.ensemble import trajectory

N, TINY = 4, 1e-9
SYSTEM = da.System(
    H=lambda q, p: jnp.sum(p**2) / 2 + jnp.sum(q**2) / 2,
    F=lambda q, p: -p,
    h=lambda q, p, w: -TINY * jnp.sum(q * w),
    dim=(N, 3),
    noises=(N, 3),
    name="particles",
)
Q0 = TINY * np.arange(3.0 * N).reshape(N, 3)


@pytest.fixture(scope="module")
def run():
    """Two paths of particles in a world of nanometres: eight decimals would be nothing of them."""
    options = dict(dt=0.1, t_end=0.7, paths=2, save_every=3, keep="all", progress=False)
    return da.simulate(SYSTEM, da.baoab(), (Q0, 0 * Q0), **options)


def read(path):
    ase_io = pytest.importorskip("ase.io")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of ASE are not ours
        return ase_io.read(path, index=":")


@pytest.mark.parametrize("suffix", ["xyz", "traj"])
@pytest.mark.parametrize("path", [0, 1])
def test_what_is_read_is_what_was_kept(run, tmp_path, suffix, path):
    pytest.importorskip("ase")
    file, symbols = tmp_path / f"fluid.{suffix}", ["Ar", "Ar", "Kr", "X"]
    run.to_trajectory(file, path, symbols=symbols, box=[1.5, 2.5, 1 / 3])
    frames = read(file)
    assert list(tmp_path.iterdir()) == [file] and len(frames) == len(run.t) == 4
    for frame, t, q, p in zip(frames, run.t, run.q[:, path], run.p[:, path], strict=True):
        np.testing.assert_array_equal(frame.positions, q)
        np.testing.assert_array_equal(frame.get_momenta(), p)
        np.testing.assert_array_equal(frame.cell[:], np.diag([1.5, 2.5, 1 / 3]))
        assert frame.info["time"] == t and frame.pbc.all()
        assert frame.get_chemical_symbols() == symbols
    assert not np.array_equal(run.q[-1, 0], run.q[-1, 1]), "the paths can be told apart"


def test_lines_of_extended_xyz(run, tmp_path):
    """No package is needed for it, and particles are X, in no box, where nothing is said."""
    run.to_trajectory(tmp_path / "a.XYZ")
    lines = (tmp_path / "a.XYZ").read_text().splitlines()
    assert len(lines) == len(run.t) * (N + 2) and lines[:: N + 2] == ["4"] * 4
    assert lines[1] == "Properties=species:S:1:pos:R:3:momenta:R:3 time=0.0"
    assert lines[2] == "X 0.0 1e-09 2e-09 0.0 0.0 0.0"
    assert "Lattice" not in "".join(lines)


@pytest.mark.parametrize("symbols", ["Ar", ["O", "H"], ["O", "H", "C", "N", "O", "X"]])
def test_molecules_are_written_one_after_the_other(run, tmp_path, symbols):
    """States (N, k, 3), of rigid bodies: k symbols are those of every molecule."""
    record = {**run.provenance["system"], "dim": [3, 2, 3]}
    z = np.random.default_rng(0).normal(size=(2, 4, 2, 3, 2, 3))
    provenance, kept = {**run.provenance, "system": record}, dict(zip("qp", z, strict=True))
    molecules = replace(run, provenance=provenance, kept=kept)
    molecules.to_trajectory(tmp_path / "a.xyz", 1, symbols=symbols)
    lines = (tmp_path / "a.xyz").read_text().splitlines()
    assert len(lines) == 4 * (6 + 2) and lines[0] == "6"
    words = [line.split() for line in lines[2:8]]
    assert [w[0] for w in words] == {1: ["Ar"] * 6, 2: ["O", "H"] * 3, 6: symbols}[
        1 if symbols == "Ar" else len(symbols)
    ]
    first = np.array([[float(x) for x in w[1:]] for w in words])
    np.testing.assert_array_equal(first, np.hstack([x[0, 1].reshape(6, 3) for x in z]))
    with pytest.raises(ValueError, match="3 symbols for 6 particles: give one, the 2 of a molecu"):
        molecules.to_trajectory(tmp_path / "b.xyz", symbols=["O", "H", "H"])


@pytest.mark.parametrize(
    ("box", "edges"),
    [
        (2.0, 2 * np.eye(3)),
        ([[2, 0, 0], [1, 2, 0], [0, 0, 3]],) * 2,
        (np.float32(2), 2 * np.eye(3)),
    ],
)
def test_boxes(run, tmp_path, box, edges):
    run.to_trajectory(tmp_path / "a.xyz", box=box)
    (frame, *_) = read(tmp_path / "a.xyz")
    np.testing.assert_array_equal(frame.cell[:], edges)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"file": "a.pdb"}, r"a\.pdb must end in \.xyz or \.traj"),
        ({"file": "fluid"}, r"fluid must end in \.xyz or \.traj"),
        ({"path": 2}, "path is 2, but the kept paths have the numbers 0 to 1"),
        ({"path": -1}, "path is -1, but"),
        ({"path": True}, "path is True, but"),
        ({"symbols": ["Ar"]}, "there are 1 symbols for 4 particles"),
        ({"symbols": "A r"}, "symbols are words such as 'Ar', not 'A r'"),
        ({"symbols": ["Ar", "", "Ar", "Ar"]}, "not ''"),
        ({"symbols": ["Ar", 18, "Ar", "Ar"]}, "not 18"),
        ({"symbols": "Q", "file": "a.traj"}, "ASE has no element 'Q'"),
        ({"box": 0.0}, "box is 0.0: give the side of a cube"),
        ({"box": [1.0, 2.0]}, "give the side of a cube"),
        ({"box": [1.0, np.nan, 1.0]}, "all of them finite"),
    ],
)
def test_what_cannot_be_written_is_refused_and_leaves_nothing(
    run, tmp_path, monkeypatch, options, message
):
    if options.get("file") == "a.traj":
        pytest.importorskip("ase")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        run.to_trajectory(**({"file": "a.xyz"} | options))
    assert list(tmp_path.iterdir()) == []


def test_only_kept_states_of_particles_in_space(run, tmp_path):
    file = tmp_path / "a.xyz"
    for kept in ({}, {"q": run.q[-1], "p": run.p[-1]}):
        with pytest.raises(ValueError, match='write keep="all"'):
            replace(run, kept=kept).to_trajectory(file)
    for dim, shape in ((12, r"\(12,\)"), ([4, 2], r"\(4, 2\)"), ([2, 3, 2], r"\(2, 3, 2\)")):
        other = replace(run, provenance={**run.provenance, "system": {"name": "s", "dim": dim}})
        with pytest.raises(ValueError, match=f"shape {shape}: run.to_xarray"):
            other.to_trajectory(file)


def test_the_trajectory_of_a_failed_path_ends_before_it_fails(run, tmp_path):
    q = run.q.copy()
    q[2:, 1] = np.nan
    failed, file = replace(run, kept={"q": q, "p": run.p}), tmp_path / "a.xyz"
    with pytest.warns(RuntimeWarning, match=r"path 1 has failed: its trajectory ends at t = 0\.3"):
        failed.to_trajectory(file, 1)
    assert len(file.read_text().splitlines()) == 2 * (N + 2)
    failed.to_trajectory(file, 0)
    with pytest.raises(ValueError, match="failed before the first save"):
        replace(run, kept={"q": np.nan * run.q, "p": run.p}).to_trajectory(file)


def test_a_full_disk_loses_nothing(run, tmp_path, monkeypatch):
    file = tmp_path / "a.xyz"
    run.to_trajectory(file)
    before = file.read_bytes()

    def full(stream, frames, cast):
        stream.write(b"4\n")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(trajectory.WRITERS, ".xyz", full)
    with pytest.raises(OSError, match=r"could not write .*a\.xyz: No space left on device"):
        run.to_trajectory(file)
    assert list(tmp_path.iterdir()) == [file] and file.read_bytes() == before


def test_a_missing_package_is_named_with_its_extra(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ase", None)
    with pytest.raises(ImportError, match=r"a \.traj file needs ASE: .*pip install ase"):
        run.to_trajectory(tmp_path / "a.traj")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", ["scipy", "h5netcdf"])
def test_netcdf_keeps_particles_and_components_apart(run, tmp_path, engine):
    run.to_xarray().to_netcdf(tmp_path / "run.nc", engine=engine)
    with xarray.open_dataset(tmp_path / "run.nc", engine=engine) as data:
        assert data["q"].dims == ("time", "path", "component_0", "component_1")
        again = da.Run.from_xarray(data.load())
    np.testing.assert_array_equal(again.q, run.q)
    np.testing.assert_array_equal(again.p, run.p)
    again.to_trajectory(tmp_path / "again.xyz", 1)
    run.to_trajectory(tmp_path / "run.xyz", 1)
    assert (tmp_path / "again.xyz").read_bytes() == (tmp_path / "run.xyz").read_bytes()
