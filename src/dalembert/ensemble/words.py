"""Numbers of several types as rows of one array of words, for a kernel that reads and writes once.

Triton's compiler looks at the whole program again for every array that is read or written: for a
long step and a dozen arrays that is most of its time. Rows have one place more than they need:
where two neighbours may be read at once, the compiler gives them to one thread, and half of the
threads do what the others do too.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax


def rows_of(arrays: Sequence[Any], word: np.dtype) -> Any:
    """Arrays of one length as rows of words; there is a power of two of rows, the last are zeros.

    The bits of a number become the lowest ones of a word. Every row ends with a word of no meaning.
    """
    words = jnp.stack([_to_word(x, word) for x in arrays])
    return jnp.pad(words, ((0, _room(len(arrays)) - len(arrays)), (0, 1)))


def unpack(rows: Any, dtypes: Sequence[np.dtype]) -> list[Any]:
    """The arrays of these types that `rows_of` or `gather` made rows of."""
    return [_from_word(rows[i, :-1], dtype) for i, dtype in enumerate(dtypes)]


def row(rows: Any, i: int, dtype: np.dtype) -> Any:
    """Some places of one array, inside a kernel, which cannot index what it holds in registers."""
    mine = jnp.where(_numbers(rows.shape) == i, rows, jnp.zeros_like(rows))
    return _from_word(jnp.sum(mine, axis=0, dtype=rows.dtype), dtype)


def gather(arrays: Sequence[Any], word: np.dtype) -> Any:
    """Some places of such rows, inside a kernel, which cannot stack what it holds in registers."""
    shape = (_room(len(arrays)), *arrays[0].shape)
    numbers, rows = _numbers(shape), jnp.zeros(shape, word)
    for i, x in enumerate(arrays):
        rows = jnp.where(numbers == i, jnp.broadcast_to(_to_word(x, word)[None], shape), rows)
    return rows


def _numbers(shape: tuple[int, ...]) -> Any:
    return lax.broadcasted_iota(jnp.int32, shape, 0)


def _room(rows: int) -> int:
    return 1 << (rows - 1).bit_length()


def _to_word(x: Any, word: np.dtype) -> Any:
    return lax.bitcast_convert_type(x, bits_of(x.dtype)).astype(word)


def _from_word(x: Any, dtype: np.dtype) -> Any:
    return lax.bitcast_convert_type(x.astype(bits_of(dtype)), dtype)


def bits_of(dtype: np.dtype) -> np.dtype:
    """Unsigned integers that are as wide as the numbers of a type."""
    return np.dtype(f"uint{8 * np.dtype(dtype).itemsize}")
