"""Vector code that the next process finds, in the folder in which JAX keeps the code of XLA.

A file is named by all that its code follows from, and begins with a checksum of that and of the
code. What is damaged, cut off, or of other versions, options or processors is not used: it is made
again. Where nothing can be read or written, nothing is kept.
"""

import os
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import jax


def kept_code(follows_from: tuple[str, ...], make: Callable[[], bytes]) -> bytes:
    """Code from the folder, or code that is made now and put there."""
    folder = _folder()
    if folder is None:
        return make()
    key = sha256(repr(follows_from).encode()).digest()
    path = folder / f"dalembert-{key.hex()}"
    if found := _read(path, key):
        return found
    start = time.perf_counter()
    code = make()
    is_long = time.perf_counter() - start >= _told("jax_persistent_cache_min_compile_time_secs")
    if is_long and len(code) >= _told("jax_persistent_cache_min_entry_size_bytes"):
        _write(path, key, code)
    return code


def _folder() -> Path | None:
    """Where code is kept; None where JAX keeps none, or in a folder that is not of this system.

    Nor in one of a limited size: JAX counts its own files alone.
    """
    name, is_on = _told("jax_compilation_cache_dir"), _told("jax_enable_compilation_cache")
    is_limited = _told("jax_compilation_cache_max_size") >= 0
    return Path(name) if is_on and name and "://" not in name and not is_limited else None


def _told(name: str) -> Any:
    """What JAX has been told of its own files."""
    return getattr(jax.config, name)


def _read(path: Path, key: bytes) -> bytes | None:
    try:
        content = path.read_bytes()
    except OSError:
        return None
    checksum, code = content[: len(key)], content[len(key) :]
    return code if checksum == _checksum(key, code) else None


def _write(path: Path, key: bytes, code: bytes) -> None:
    """All or nothing: other processes see the whole file or none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        try:
            with os.fdopen(file, "wb") as out:
                out.write(_checksum(key, code) + code)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
            raise
    except OSError:
        return


def _checksum(key: bytes, code: bytes) -> bytes:
    return sha256(key + code).digest()
