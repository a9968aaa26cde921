"""Kept states of particles as files for the viewers of molecular dynamics: VMD, OVITO, ASE."""

import warnings
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import jax
import numpy as np

from dalembert.ensemble import archive
from dalembert.ensemble.run import Run


class _Frame(NamedTuple):
    """One save of one path: arrays of shape (particles, 3), those of molecules one by one."""

    t: float
    q: np.ndarray
    p: np.ndarray


class _Cast(NamedTuple):
    """What all frames have in common: a symbol for each particle, and the box, (3, 3) or None."""

    symbols: list[str]
    box: np.ndarray | None


def to_trajectory(run: Run, file: Any, path: int, symbols: Any, box: Any) -> None:
    """See `Run.to_trajectory`."""
    write = WRITERS.get(Path(file).suffix.lower())
    if write is None:
        raise ValueError(
            f"{file} must end in {' or '.join(WRITERS)}: .xyz is extended XYZ, which VMD, OVITO "
            "and ASE read, .traj is ASE's own format."
        )
    frames, cast = _frames(run, path), _Cast(_symbols(run, symbols), _box(box))
    if jax.process_index() == 0:
        archive.replace(file, lambda stream: write(stream, frames, cast))


def _frames(run: Run, path: Any) -> list[_Frame]:
    """The saves of one path, up to its failure."""
    dim = run.provenance["system"]["dim"]
    if not isinstance(dim, list) or len(dim) < 2 or dim[-1] != 3:
        shape = tuple(dim) if isinstance(dim, list) else (dim,)
        raise ValueError(
            f"a trajectory for viewers has particles in space, states of shape (N, 3), or (N, k, "
            f"3) for molecules, and those of {run.provenance['system']['name']!r} have shape "
            f"{shape}: run.to_xarray().to_netcdf(FILE) writes any shape."
        )
    if not run.kept or run.q.ndim != 2 + len(dim):
        raise ValueError('a trajectory needs the states at all save times: write keep="all".')
    count = run.q.shape[1]
    if not isinstance(path, int | np.integer) or isinstance(path, bool) or not 0 <= path < count:
        raise ValueError(f"path is {path!r}, but the kept paths have the numbers 0 to {count - 1}.")
    q, p = (x[:, path].reshape(len(x), -1, 3) for x in (run.q, run.p))
    # From its failure on a path is NaN, which no viewer reads.
    lost = np.flatnonzero(~np.isfinite(np.stack([q, p])).all(axis=(0, 2, 3)))
    end = int(lost[0]) if len(lost) else len(q)
    if end == 0:
        raise ValueError(f"path {path} has failed before the first save: nothing is left to show.")
    if end < len(q):
        text = f"path {path} has failed: its trajectory ends at t = {run.t[end - 1]:g}."
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    return [_Frame(float(t), *z) for t, *z in zip(run.t[:end], q, p, strict=False)]


def _symbols(run: Run, symbols: str | Sequence[str]) -> list[str]:
    shape = run.provenance["system"]["dim"][:-1]
    count = prod(shape)
    found = [symbols] if isinstance(symbols, str) else list(symbols)
    # Of molecules (N, k, 3): k symbols are those of each.
    if not isinstance(symbols, str) and len(found) not in (count, *shape[1:][-1:]):
        each = f", the {shape[-1]} of a molecule," if len(shape) > 1 else ""
        raise ValueError(
            f"there are {len(found)} symbols for {count} particles: give one{each} or all."
        )
    found = found * (count // len(found))
    wrong = [s for s in found if not isinstance(s, str) or len(s.split()) != 1 or s != s.strip()]
    if wrong:
        raise ValueError(f"symbols are words such as 'Ar', not {wrong[0]!r}.")
    return found


def _box(box: Any) -> np.ndarray | None:
    """Rows are the edges of the box."""
    if box is None:
        return None
    sides = np.asarray(box, np.float64)
    edges = np.diag(np.broadcast_to(sides, 3)) if sides.shape in ((), (1,), (3,)) else sides
    if edges.shape != (3, 3) or not np.isfinite(edges).all() or np.linalg.det(edges) <= 0:
        raise ValueError(
            f"box is {box!r}: give the side of a cube, three sides, or three edges as rows, "
            "right-handed, all of them finite and not zero."
        )
    return edges


def _extended_xyz(stream: IO[bytes], frames: Sequence[_Frame], cast: _Cast) -> None:
    """Written here and not by ASE, whose eight decimals are nothing of a nanometre in metres."""
    for frame in frames:
        stream.write("\n".join(_lines(frame, cast)).encode() + b"\n")


def _lines(frame: _Frame, cast: _Cast) -> Iterator[str]:
    yield f"{len(frame.q)}"
    periodic = ""
    if cast.box is not None:
        periodic = f'Lattice="{_words(cast.box.ravel())}" pbc="T T T" '
    yield f"{periodic}Properties=species:S:1:pos:R:3:momenta:R:3 time={frame.t!r}"
    for symbol, q, p in zip(cast.symbols, frame.q, frame.p, strict=True):
        yield f"{symbol} {_words(q)} {_words(p)}"


def _words(numbers: np.ndarray) -> str:
    """All digits."""
    return " ".join(map(repr, numbers.astype(np.float64).tolist()))


def _ase(stream: IO[bytes], frames: Sequence[_Frame], cast: _Cast) -> None:
    try:
        from ase import Atoms
        from ase.io.trajectory import TrajectoryWriter
    except ImportError as error:
        raise ImportError(
            "a .traj file needs ASE: install it with  pip install ase, or write .xyz, "
            "which needs nothing."
        ) from error
    writer = TrajectoryWriter(stream)
    for t, q, p in frames:
        try:
            atoms = Atoms(cast.symbols, q, cell=cast.box, pbc=cast.box is not None)
        except KeyError as error:
            raise ValueError(f"ASE has no element {error}; X stands for any.") from error
        atoms.set_momenta(p)
        atoms.info["time"] = t
        writer.write(atoms)


WRITERS = {".xyz": _extended_xyz, ".traj": _ase}
