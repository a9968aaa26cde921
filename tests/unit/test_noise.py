"""Noise: known answers, laws, purity, coarsening, enumeration, errors.

Statistical checks use fixed seeds and allow 5 standard errors: a false alarm has probability 5.7e-7
per check, under 3e-4 for all checks of this file together, and would not come and go from run to
run. Every kind of check is also made to fail on a law that is wrong by a little.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dalembert.noise import (
    Gaussian,
    Increments,
    Recorded,
    Signs,
    ThreePoint,
    Zero,
    brownian_path,
    coarsen,
    enumerate_three_point,
    initial_key,
    kinds,
    philox,
    pick,
    truncation,
)
from dalembert.noise.philox import (
    Stream,
    _around_tag,
    normal_numbers,
    path_words,
    philox4x32,
    seed_words,
    stream_words,
)
from tiers import tiered

ONES = 0xFFFFFFFF
SIGMAS = 5.0
P_VALUE = 5.7e-7
DT = 0.25
KINDS = [Gaussian(), Gaussian(truncation=1), ThreePoint(), Zero()]
KIND_NAMES = ["gaussian", "truncated", "three-point", "zero"]


def sample(noise, paths, noises=1, dt=DT, seed=1, step=7, dtype=np.float64):
    """Increments of many paths at one step, as NumPy arrays."""
    draw = jax.jit(jax.vmap(lambda path: noise.draw(seed, path, step, dt, noises, dtype)))
    return jax.tree.map(np.asarray, draw(jnp.arange(paths)))


def sigmas(values, expected):
    """How many standard errors the mean of independent values lies from what is expected."""
    return abs(np.mean(values) - expected) / (np.std(values) / np.sqrt(np.size(values)))


def sample_groups(noise, paths, noises=1, dt=DT, seed=1, number=7, dtype=np.float64):
    """Increments of many paths at the steps that share a block; first axis: the steps."""

    def group(path):
        return noise.draw_together(seed, path, number, dt, noises, dtype)

    return jax.tree.map(lambda *rows: np.stack(rows), *jax.jit(jax.vmap(group))(jnp.arange(paths)))


def assert_close(a, b, dt=DT, ulps=8):
    """Increments that agree to rounding of the sums that they are."""
    rounding = ulps * np.finfo(np.asarray(a.dW).dtype).eps
    np.testing.assert_allclose(a.dW, b.dW, rtol=rounding, atol=rounding * dt**0.5)
    for x, y, scale in ((a.dZ, b.dZ, dt**1.5), (a.mixed, b.mixed, 0)):
        assert (x is None) == (y is None)
        if x is not None:
            np.testing.assert_allclose(x, y, rtol=rounding, atol=rounding * scale)
    assert same_bits(a.truncated, b.truncated)


def same_bits(a, b):
    """Equal, with the sign of zero and every last bit."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(
        np.asarray(x).dtype == np.asarray(y).dtype
        and np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in pairs
    )


# --- Philox ---------------------------------------------------------------------------------------

KNOWN_ANSWERS = {
    "zeros": ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    "ones": ((ONES,) * 2, (ONES,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    "pi": (
        (0xA4093822, 0x299F31D0),
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}


@pytest.mark.parametrize("x64", [True, False])
@pytest.mark.parametrize("case", KNOWN_ANSWERS)
def test_philox_known_answers(case, x64):
    key, counter, expected = KNOWN_ANSWERS[case]
    with jax.enable_x64(x64):
        words = philox4x32(key, counter)
        assert all(word.dtype == jnp.uint32 for word in words)
        assert tuple(int(word) for word in words) == expected
        assert (
            tuple(int(word) for word in jax.jit(philox4x32)(*map(_u32, (key, counter)))) == expected
        )


def _u32(words):
    return tuple(np.uint32(word) for word in words)


def test_nine_rounds_miss_the_known_answer(monkeypatch):
    monkeypatch.setattr(philox, "ROUNDS", 9)
    key, counter, expected = KNOWN_ANSWERS["pi"]
    assert tuple(int(word) for word in philox4x32(key, counter)) != expected


def test_products_without_64_bit_integers():
    edges = np.array([0, 1, 0xFFFF, 0x10000, 0x10001, 0x7FFFFFFF, 0x80000000, ONES], np.uint32)
    random = np.random.default_rng(0).integers(0, 2**32, 10_000, dtype=np.uint32)
    b = jnp.asarray(np.concatenate([edges, random]))
    for a in (*philox.MULTIPLIERS, ONES, 1, 0x10000):
        exact = [a * int(x) for x in np.asarray(b)]
        high, low = philox._multiply_halves(a, b)
        assert high.dtype == low.dtype == jnp.uint32
        assert np.asarray(high).tolist() == [x >> 32 for x in exact]
        assert np.asarray(low).tolist() == [x & ONES for x in exact]


def test_words_are_the_same_with_x64_on_and_off():
    counter = tuple(np.random.default_rng(1).integers(0, 2**32, (4, 5000), dtype=np.uint32))
    on = philox4x32((11, 12), counter)
    with jax.enable_x64(False):
        off = philox4x32((11, 12), counter)
    assert same_bits(on, off)


# --- normal numbers from words --------------------------------------------------------------------

NINE_DIGITS = 2e-9
"""The error of the functions that make normal numbers from words."""
LARGEST = np.sqrt(104 * np.log(2))
"""√(−2 ln 2⁻⁵²) = 8.49"""


def normals_of(first, second, dtype=np.float64):
    """The first pair of the four numbers, whose words are given, as float64."""
    words = jnp.asarray(first, jnp.uint32), jnp.asarray(second, jnp.uint32)
    pair = jax.jit(lambda a, b: normal_numbers((a, b, a, b), dtype)[:2])
    return [np.asarray(x, np.float64) for x in pair(*words)]


def exact_pair(first, second):
    """−ln u, the numbers along and across an axis, and whether that is the second one."""
    first, second = (np.asarray(word, np.uint64) for word in (first, second))
    low = second & np.uint64(2**20 - 1)
    missing = ((~first & np.uint64(ONES)) << np.uint64(20)) | (low ^ np.uint64(2**20 - 1))
    u = ((first << np.uint64(20)) | low).astype(np.float64) * 2.0**-52 + 2.0**-52
    energy = np.where(u > 0.5, -np.log1p(-missing.astype(np.float64) * 2.0**-52), -np.log(u))
    place = ((second & np.uint64(2**30 - 1)) << np.uint64(22)) | (first & np.uint64(2**22 - 1))
    angle = np.pi / 2 * (place.astype(np.int64) - 2**51) * 2.0**-52
    sign = 1 - 2 * (second >> np.uint64(31)).astype(np.float64)
    along, across = (np.sqrt(2 * energy) * f(angle) for f in (np.cos, np.sin))
    return energy, sign * along, across, (second >> np.uint64(30)).astype(int) & 1 == 1


def words_of_all_kinds():
    """Bits one by one, words of zeros and ones, and random ones."""
    rng = np.random.default_rng(0)
    special = np.concatenate([np.uint32(1) << np.arange(32, dtype=np.uint32), [0, ONES, ONES - 1]])
    pairs = np.array([(x, y) for x in special for y in special])
    random = rng.integers(0, 2**32, (10_000, 2))
    return np.concatenate([pairs, random]).astype(np.uint32).T


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_numbers_are_those_of_their_bits(dtype):
    """All 52 bits of the radius and 54 of the angle, with nine digits of the smaller number too."""
    first, second = words_of_all_kinds()
    x, y = normals_of(first, second, dtype)
    energy, along, across, is_turned = exact_pair(first, second)
    found = np.where(is_turned, y, x), np.where(is_turned, x, y)
    digits = 4.5e-9 if dtype == np.float64 else 1e-5
    # In single precision the last bits of an angle are left out.
    least = 2.0**-52 if dtype == np.float64 else 2.0**-30
    radius = np.sqrt(2 * energy)
    np.testing.assert_allclose(found[0], along, rtol=digits)
    assert (np.abs(found[1] - across) <= digits * np.abs(across) + 2 * least * radius).all()
    for changed in (exact_pair(first, second ^ np.uint32(1)), exact_pair(first ^ 1, second)):
        wrong = np.abs(changed[2] - across) > digits * np.abs(across) + 2 * least * radius
        assert wrong.any(), "the last bits are not seen"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_numbers_reach_from_zero_to_the_largest(dtype):
    places = np.arange(0, 2**32, 2**20 * 1013, dtype=np.uint64).astype(np.uint32)
    far = np.hypot(*normals_of(np.zeros_like(places), places, dtype))
    np.testing.assert_allclose(far, LARGEST, rtol=max(8 * np.finfo(dtype).eps, NINE_DIGITS))
    assert 8.49 < LARGEST < 8.491 and far.max() < 8.491
    near = normals_of(np.full_like(places, ONES), places | np.uint32(2**20 - 1), dtype)
    assert np.max(np.abs(near)) == 0
    nearly = normals_of(np.full_like(places, ONES), places | np.uint32(2**20 - 2), dtype)
    np.testing.assert_allclose(np.hypot(*nearly), 2.0**-25.5, rtol=1e-6)
    # Of 10¹⁶ exact normal numbers so many are larger.
    assert 2 * stats.norm.sf(LARGEST) * 1e16 == pytest.approx(0.2, abs=0.05)


@pytest.mark.slow
def test_places_on_the_circle_are_equally_far_apart():
    """2²² of them, each hit once."""
    place = (np.arange(2**22, dtype=np.uint32) << np.uint32(10)) | np.uint32(0x200)
    x, y = normals_of(np.zeros_like(place), place)
    angle = np.sort(np.arctan2(y, x)) / (2 * np.pi)
    steps = np.diff(angle, append=angle[0] + 1)
    np.testing.assert_allclose(steps, 2.0**-22, rtol=0, atol=1e-9)
    spoiled = np.sort(np.arctan2(y, np.where(np.arange(2**22) == 9, -x, x))) / (2 * np.pi)
    assert np.abs(spoiled - angle).max() > 1e-8, "a wrong sign is not seen"


@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.slow), np.float64])
@pytest.mark.parametrize("bits", [10, 18])
def test_no_hole_around_zero(bits, dtype):
    """Words whose angles are so near to an axis that every number counts."""
    rng, size = np.random.default_rng(bits), 2**20
    first, second = rng.integers(0, 2**32, (2, size), dtype=np.uint32)
    # t in ±2^-(bits + 1), with a random quarter.
    quarter = second & np.uint32(3 << 30)
    narrow = np.uint32(2**29 - 2 ** (29 - bits)) + (second & np.uint32(2 ** (30 - bits) - 1))

    def smaller(words):
        return np.min(np.abs(normals_of(first, words, dtype)), axis=0)

    def expected(limit):
        """P(r |sin φ| < limit) for φ up to w: ∫ P(r < limit/sin φ) dφ/w, φ small."""
        w = np.pi / 4 * 2.0**-bits
        phi = w * (np.arange(200_000) + 0.5) / 200_000
        return np.mean(-np.expm1(-((limit / phi) ** 2) / 2))

    for limit in (3e-7 * 2.0 ** (10 - bits), 1e-3 * 2.0**-bits):
        wanted = size * expected(limit)
        assert wanted > 300
        count = np.sum(smaller(quarter | narrow) < limit)
        assert abs(count - wanted) < SIGMAS * np.sqrt(wanted)
        # Angles of 22 bits leave a hole.
        if limit < 4e-7:
            coarse = (narrow & ~np.uint32(0x3FF)) | np.uint32(0x200)
            found = np.sum(smaller(quarter | coarse) < limit)
            assert abs(found - wanted) > SIGMAS * np.sqrt(wanted)


@pytest.mark.slow
def test_moments_tails_and_zero_of_a_thousand_million():
    paths, blocks = 2**18, 960
    powers, near, far = (1, 2, 3, 4, 6), (1e-7, 3e-7, 1e-6, 1e-5), (1.0, 2.0, 3.0, 4.0, 5.0)
    index = jnp.arange(paths, dtype=jnp.uint32)

    @jax.jit
    def sums(number):
        words = philox4x32((3, 4), (index, 0, number, 0))
        z = jnp.stack(normal_numbers(words, np.float64))
        size = jnp.abs(z)
        counts = [size < limit for limit in near] + [size > limit for limit in far]
        moments = [jnp.sum(z**power) for power in powers]
        return jnp.stack([*moments, *(jnp.sum(x, dtype=np.float64) for x in counts)])

    total = sum(np.asarray(sums(np.uint32(number))) for number in range(blocks))
    size = 4 * paths * blocks
    assert size > 1e9
    exact = {power: stats.norm.moment(power) for power in (*powers, 8, 12)}
    for power, found in zip(powers, total[: len(powers)], strict=True):
        error = np.sqrt((exact[2 * power] - exact[power] ** 2) / size)
        assert abs(found / size - exact[power]) < SIGMAS * error, power
    chances = [2 * stats.norm.cdf(limit) - 1 for limit in near]
    chances += [2 * stats.norm.sf(limit) for limit in far]
    for chance, found in zip(chances, total[len(powers) :], strict=True):
        assert abs(found - size * chance) < SIGMAS * np.sqrt(size * chance), chance
    # With angles of 22 bits a third of those near zero were there.
    assert abs(77 - 239) > SIGMAS * np.sqrt(239)


def test_each_pair_of_numbers_has_its_own_words():
    base = [np.uint32(0x12345678 + 77 * i) for i in range(4)]

    def numbers(words):
        return [float(x) for x in normal_numbers(tuple(map(jnp.asarray, words)), np.float64)]

    for i in range(4):
        changed = [word ^ np.uint32(0x10101010) if j == i else word for j, word in enumerate(base)]
        differs = [x != y for x, y in zip(numbers(base), numbers(changed), strict=True)]
        assert differs == [i < 2, i < 2, i >= 2, i >= 2]


# --- the counter ----------------------------------------------------------------------------------


def test_counter_layout():
    seed, path, step = 0x1122334455667788, 0x0123456789ABCDEF, 42
    words = stream_words(Stream.THREE_POINT, seed, path, step, 3)
    for k in range(3):
        counter = (0x89ABCDEF, 0x01234567, step, Stream.THREE_POINT << 24 | k)
        expected = philox4x32((0x55667788, 0x11223344), counter)
        assert [int(word[k]) for word in words] == [int(word) for word in expected]


def test_noise_indices_of_large_systems_leave_room_for_the_tag():
    """Below 2²⁴ they are as they were; up to 2²⁹ all differ, and none has bits of a tag."""
    index = np.concatenate([np.arange(5), 2**24 + np.arange(5), [2**28 + 1, 2**29 - 1]])
    words = _around_tag(index.astype(np.uint32))
    assert list(words[:5]) == [0, 1, 2, 3, 4] and len({*map(int, words)}) == len(index)
    assert not np.any(words & np.uint32(7 << 24)) and max(Stream) < 8
    assert jax.eval_shape(lambda: stream_words(Stream.COIN, 0, 0, 0, 10**8))[0].shape == (10**8,)


def test_path_numbers_of_every_integer_type_agree():
    def words(path):
        return stream_words(Stream.GAUSSIAN, 0, path, 0, 2)

    for path in (0, 5, 2**31 + 3, 2**40 + 3, 2**63 - 1):
        forms = [np.int64(path), jnp.asarray(path, jnp.int64)]
        forms += [jnp.asarray(path, jnp.uint32)] if path < 2**32 else []
        assert all(same_bits(words(path), words(form)) for form in forms)
        assert same_bits(words(path), words(path_words(path)))
    assert not same_bits(words(3), words(2**40 + 3))
    with jax.enable_x64(False):
        narrow = words(2**40 + 3)
    assert same_bits(narrow, words(2**40 + 3))


def test_seed_words_stand_for_the_seed_and_can_be_traced():
    seed = 2**63 + 17
    draw = jax.jit(lambda words: Gaussian().draw(words, 3, 4, DT, 2, np.float64))
    assert_close(draw(seed_words(seed)), Gaussian().draw(seed, 3, 4, DT, 2, np.float64))
    words = jax.jit(lambda seed: stream_words(Stream.GAUSSIAN, seed, 3, 4, 2))
    assert same_bits(words(seed_words(seed)), stream_words(Stream.GAUSSIAN, seed, 3, 4, 2))
    assert not same_bits(draw(seed_words(17)), draw(seed_words(seed)))
    draw(seed_words(99))
    assert draw._cache_size() == 1


def test_streams_do_not_share_words():
    words = [np.asarray(stream_words(stream, 0, 0, 0, 4)) for stream in Stream]
    assert len(np.unique(words)) == np.size(words)


@pytest.mark.parametrize(
    "noise",
    [Gaussian(), pytest.param(Gaussian(truncation=1), marks=pytest.mark.slow), ThreePoint()],
)
def test_a_block_serves_the_steps_that_its_number_says(noise):
    together = noise.together
    assert together == (8 if noise == ThreePoint() else 4)
    for number in (0, 5, 2**32 // together - 1):
        group = noise.draw_together(2, 3, number, DT, 2, np.float64)
        assert len(group) == together
        for place, one in enumerate(group):
            assert_close(noise.draw(2, 3, together * number + place, DT, 2, np.float64), one)
            assert same_bits(pick(place, group), one)
        drawn = np.stack([one.dW for one in noise.draw_together(2, 3, number, DT, 24, np.float64)])
        assert all((drawn[i] != drawn[j]).any() for i in range(together) for j in range(i))


def test_increments_are_those_of_their_words():
    first = [int(word[1]) for word in stream_words(Stream.GAUSSIAN, 2, 3, 5, 2)]
    area = [int(word[1]) for word in stream_words(Stream.GAUSSIAN_AREA, 2, 3, 5, 2)]
    chi = np.concatenate([normals_of(*first[:2]), normals_of(*first[2:])])
    eta = np.concatenate([normals_of(*area[:2]), normals_of(*area[2:])])
    four = Gaussian().draw_together(2, 3, 5, DT, 2, np.float64)
    np.testing.assert_allclose([one.dW[1] for one in four], np.sqrt(DT) * chi, rtol=1e-14)
    dZ = DT**1.5 / 2 * (chi + eta / np.sqrt(3))
    np.testing.assert_allclose([one.dZ[1] for one in four], dZ, rtol=1e-13)


def test_consecutive_blocks_share_no_words():
    def block(number):
        return stream_words(Stream.GAUSSIAN, 0, 0, number, 4)

    words = np.asarray(jax.vmap(block)(jnp.arange(64, dtype=jnp.uint32)))
    assert len(np.unique(words)) == words.size


# --- purity ---------------------------------------------------------------------------------------


def everywhere(draw, paths=13, steps=3):
    """What a function of (path, step) gives eagerly, compiled, mapped and in a scan."""

    def scan(path):
        return jax.lax.scan(lambda carry, step: (carry, draw(path, step)), 0, jnp.arange(steps))[1]

    def stack(results):
        return jax.tree.map(lambda *leaves: np.stack(leaves), *results)

    compiled = jax.jit(draw)
    eager = stack([stack([draw(i, n) for n in range(steps)]) for i in range(paths)])
    looped = stack([stack([compiled(i, n) for n in range(steps)]) for i in range(paths)])
    mapped = jax.vmap(lambda i: jax.vmap(lambda n: draw(i, n))(jnp.arange(steps)))
    scanned = jax.jit(jax.vmap(scan))
    return eager, looped, mapped(jnp.arange(paths)), scanned(jnp.arange(paths))


@pytest.mark.parametrize("noises", tiered([1, 3], fast=["1"]))
@pytest.mark.parametrize(
    "noise",
    [
        pytest.param(Gaussian(), id="gaussian", marks=pytest.mark.slow),
        pytest.param(Gaussian(truncation=1), id="truncated", marks=pytest.mark.slow),
        pytest.param(ThreePoint(), id="three-point"),
        pytest.param(Zero(), id="zero"),
    ],
)
def test_eager_jit_vmap_scan_and_loop_agree_to_rounding(noise, noises):
    def draw(path, step):
        return noise.draw(3, path, step, DT, noises, np.float64)

    eager, *others = everywhere(draw, paths=5)
    for other in others:
        assert_close(eager, other)
        if not isinstance(noise, Gaussian):
            assert same_bits(eager, other)
    with pytest.raises(AssertionError):
        assert_close(eager._replace(dW=eager.dW + 1e-13), others[0])


def test_words_are_the_same_bit_for_bit_however_they_are_computed():
    def words(path, step):
        return stream_words(Stream.GAUSSIAN, 3, path, step, 3)

    eager, *others = everywhere(words, paths=5)
    assert all(same_bits(eager, other) for other in others)


@pytest.mark.slow
def test_gaussian_numbers_do_not_depend_on_what_is_compiled_around_them():
    def drift(path):
        increments = Gaussian().draw(3, path, 2, 0.3, 1, np.float64)
        return increments, 2.0 * increments.dW + 1.0, increments.dZ - 3.0 * increments.dW

    paths = jnp.arange(1003)
    alone = jax.vmap(lambda path: Gaussian().draw(3, path, 2, 0.3, 1, np.float64))(paths)
    assert_close(alone, jax.jit(jax.vmap(drift))(paths)[0])
    traced = jax.jit(
        lambda dt: jax.vmap(lambda i: Gaussian().draw(3, i, 2, dt, 1, np.float64))(paths)
    )
    assert_close(alone, traced(0.3))


@pytest.mark.slow
def test_float32_draws_are_the_float64_draws_in_single_precision():
    double, single = (sample(Gaussian(), 10_001, 2, dtype=t) for t in (np.float64, np.float32))
    assert single.dW.dtype == single.dZ.dtype == np.float32
    difference = np.abs(double.dW - single.dW)
    # Where u is near 1, √(−2 ln u) magnifies the rounding of u: the largest error is far above ε.
    assert np.median(difference) < 1e-7 and difference.max() < 1e-3
    alone = jax.jit(lambda i: Gaussian().draw(1, i, 7, DT, 2, np.float32).dW)
    tiny = np.stack([alone(i) for i in range(50)])
    np.testing.assert_allclose(tiny, single.dW[:50], rtol=8 * np.finfo(np.float32).eps)
    with jax.enable_x64(False):
        off = sample(Gaussian(), 10_001, 2, dtype=np.float32)
    np.testing.assert_allclose(off.dW, single.dW, rtol=8 * np.finfo(np.float32).eps)


@pytest.mark.parametrize("noise", [Gaussian(), ThreePoint()], ids=["gaussian", "three-point"])
def test_seed_path_step_and_index_all_matter(noise):
    @jax.jit
    def rows(seed, path, steps):
        return jax.vmap(lambda n: noise.draw(seed, path, n, DT, 2, np.float64).dW)(steps)

    def row(seed, path, step):
        return np.asarray(rows(seed_words(seed), path_words(path), jnp.arange(64) + step * 64))

    base = row(0, 0, 0)
    assert same_bits(base, row(0, 0, 0))
    for other in (row(1, 0, 0), row(2**32, 0, 0), row(0, 1, 0), row(0, 2**32, 0), row(0, 0, 1)):
        assert np.mean(base == other) < 0.75
    assert np.mean(base[:, 0] == base[:, 1]) < 0.75


def test_initial_keys_are_pure_and_distinct():
    keys = jax.vmap(lambda path: initial_key(5, path))(jnp.arange(1000))
    assert jnp.issubdtype(keys.dtype, jax.dtypes.prng_key)
    data = np.asarray(jax.random.key_data(keys))
    assert len(np.unique(data, axis=0)) == 1000
    assert same_bits(data[17], jax.random.key_data(initial_key(5, 17)))
    assert not same_bits(data[17], jax.random.key_data(initial_key(6, 17)))
    normals = np.asarray(jax.vmap(jax.random.normal)(keys))
    assert sigmas(normals, 0) < SIGMAS and sigmas(normals**2, 1) < SIGMAS


# --- the Gaussian law -----------------------------------------------------------------------------

GAUSSIAN_MOMENTS = {
    "E dW": (lambda w, z: w, 0),
    "E dW^2": (lambda w, z: w**2, DT),
    "E dW^3": (lambda w, z: w**3, 0),
    "E dW^4": (lambda w, z: w**4, 3 * DT**2),
    "E dZ": (lambda w, z: z, 0),
    "E dZ^2": (lambda w, z: z**2, DT**3 / 3),
    "E dW dZ": (lambda w, z: w * z, DT**2 / 2),
    "E dZ^4": (lambda w, z: z**4, 3 * (DT**3 / 3) ** 2),
    "E dW^2 dZ^2": (lambda w, z: w**2 * z**2, DT * DT**3 / 3 + 2 * (DT**2 / 2) ** 2),
}


@pytest.fixture(scope="module")
def gaussian():
    """(ΔW, ΔZ) over a step DT: drawn in either type, and coarsened from five steps of DT/5."""
    double, single = (sample(Gaussian(), 2**20, dtype=dtype) for dtype in (np.float64, np.float32))
    fine = jax.jit(jax.vmap(lambda i: brownian_path(13, i, DT / 5, 5, 1)))(jnp.arange(2**18))
    drawn = {"float64": double, "float32": single, "coarsened": coarsen(fine, DT / 5, 5)}
    return {key: [np.asarray(x, np.float64) for x in each[:2]] for key, each in drawn.items()}


@pytest.mark.parametrize("origin", ["float64", "float32", "coarsened"])
@pytest.mark.parametrize("name", GAUSSIAN_MOMENTS)
def test_gaussian_moments(name, origin, gaussian):
    moment, expected = GAUSSIAN_MOMENTS[name]
    assert sigmas(moment(*gaussian[origin]), expected) < SIGMAS


def test_gaussian_moments_can_fail(gaussian):
    w, z = gaussian["float64"]
    assert sigmas(1.02 * w**2, DT) > SIGMAS
    without_eta = DT / 2 * w
    assert sigmas(without_eta**2, DT**3 / 3) > SIGMAS
    assert sigmas(w * without_eta, DT**2 / 2) < SIGMAS, "E dW dZ alone does not see η"
    foreign = np.roll(z, 1)
    assert sigmas(w * foreign, DT**2 / 2) > SIGMAS
    assert sigmas((w + 0.01 * np.sqrt(DT)), 0) > SIGMAS


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_normals_pass_kolmogorov_smirnov(dtype):
    drawn = sample(Gaussian(), 2**20, dt=1.0, seed=4, dtype=dtype)
    chi = drawn.dW[:, 0].astype(np.float64)
    eta = np.sqrt(3) * (2 * drawn.dZ[:, 0].astype(np.float64) - chi)
    for normals in (chi, eta):
        assert stats.kstest(normals, "norm").pvalue > P_VALUE
        assert stats.kstest(1.02 * normals, "norm").pvalue < P_VALUE
    # The angle and the radius of two independent ones are uniform and exponential.
    assert stats.kstest(np.arctan2(eta, chi), "uniform", (-np.pi, 2 * np.pi)).pvalue > P_VALUE
    assert stats.kstest((chi**2 + eta**2) / 2, "expon").pvalue > P_VALUE


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_four_steps_of_a_block_are_normal_and_independent(dtype):
    size = 2**18
    drawn = sample_groups(Gaussian(), size, dt=1.0, seed=14, dtype=dtype)
    chi = drawn.dW[..., 0].astype(np.float64)
    eta = np.sqrt(3) * (2 * drawn.dZ[..., 0].astype(np.float64) - chi)
    every = [*chi, *eta]
    for x in every:
        assert stats.kstest(x, "norm").pvalue > P_VALUE
        assert stats.kstest(1.03 * x, "norm").pvalue < P_VALUE
    for i, x in enumerate(every):
        for y in every[:i]:
            # Polynomials that are orthogonal for independent normal numbers.
            for u, v in ((x, y), (x**2 - 1, y**2 - 1), (x**2 - 1, y), (x, y**2 - 1)):
                assert sigmas(u * v, 0) < SIGMAS
    for x, y in (chi[:2], chi[2:], eta[:2], eta[2:]):
        # The angle and the radius of a pair that shares its words.
        angle = np.arctan2(y, x)
        assert stats.kstest(angle, "uniform", (-np.pi, 2 * np.pi)).pvalue > P_VALUE
        assert stats.kstest((x**2 + y**2) / 2, "expon").pvalue > P_VALUE
    x, y = chi[:2]
    assert sigmas(x * (y + 0.02 * x), 0) > SIGMAS
    same_radius = (x**2 - 1) * ((x * y / np.abs(y)) ** 2 - 1)
    assert sigmas(same_radius, 0) > SIGMAS


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_normals_have_the_right_tails(dtype):
    size = 2**22
    normals = sample(Gaussian(), size, dt=1.0, seed=5, dtype=dtype).dW[:, 0]
    for threshold in (2.0, 3.0, 4.0, 4.5):
        probability = stats.norm.sf(threshold)
        error = np.sqrt(size * probability)
        for count in (np.sum(normals > threshold), np.sum(normals < -threshold)):
            assert abs(count - size * probability) < SIGMAS * error
    uniform = np.random.default_rng(0).random((size // 4, 12), dtype=np.float32)
    thin = uniform.sum(axis=1) - 6
    expected = size / 4 * stats.norm.sf(3.5)
    assert abs(np.sum(thin > 3.5) - expected) > SIGMAS * np.sqrt(expected)


@pytest.mark.parametrize("noise", [Gaussian(), ThreePoint()], ids=["gaussian", "three-point"])
def test_no_correlation_across_path_step_and_index(noise):
    def draw(path, step):
        return noise.draw(6, path, step, 1.0, 3, np.float64).dW

    steps, paths = jnp.arange(512), jnp.arange(512)
    x = np.asarray(jax.jit(jax.vmap(lambda i: jax.vmap(lambda n: draw(i, n))(steps)))(paths))
    for power in (1, 2):
        y = x**power - np.mean(x**power)
        for axis in range(3):
            # Four steps share a block: lags within it, and into the next ones.
            for lag in (1, 2, 3, 4, 5) if axis == 1 else (1, 2):
                count = y.shape[axis] - lag
                early, late = (np.take(y, np.arange(count) + by, axis) for by in (0, lag))
                assert sigmas(early * late, 0) < SIGMAS
                assert sigmas(early * (late + 0.02 * early), 0) > SIGMAS


# --- truncation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("k", [1, 2.5])
def test_truncation_bounds_and_counts(k, dtype):
    dt, noises, paths = 0.3, 3, 2**17
    free = sample(Gaussian(), paths, noises, dt, dtype=dtype)
    cut = sample(Gaussian(truncation=k), paths, noises, dt, dtype=dtype)
    bound = dtype(np.sqrt(2 * k * dt * abs(np.log(dt))))
    outside = np.abs(free.dW) > bound
    assert cut.dZ is None and cut.mixed is None and cut.truncated.dtype == np.int32
    assert np.abs(cut.dW).max() == bound
    assert np.array_equal(cut.truncated, outside.sum(axis=1))
    assert np.array_equal(cut.dW[~outside], free.dW[~outside])
    assert np.array_equal(cut.dW[outside], np.copysign(bound, free.dW[outside]))
    probability = 2 * stats.norm.sf(bound / np.sqrt(dt))
    total = paths * noises
    error = np.sqrt(total * probability * (1 - probability))
    assert abs(cut.truncated.sum() - total * probability) < SIGMAS * error
    without_the_two = 2 * stats.norm.sf(bound / np.sqrt(2 * dt))
    assert abs(cut.truncated.sum() - total * without_the_two) > SIGMAS * error
    assert sigmas(cut.dW, 0) < SIGMAS


def test_truncated_variance_is_the_closed_form():
    dt = 0.3
    a = np.sqrt(2 * abs(np.log(dt)))
    inside = 1 - 2 * stats.norm.sf(a) - 2 * a * stats.norm.pdf(a)
    expected = dt * (inside + 2 * a**2 * stats.norm.sf(a))
    squares = sample(Gaussian(truncation=1), 2**20, dt=dt).dW ** 2
    assert sigmas(squares, expected) < SIGMAS
    assert sigmas(squares, dt) > SIGMAS


def test_truncation_is_off_by_default_and_said_in_offers():
    assert Gaussian().truncation is None
    assert Gaussian().draw(0, 0, 0, DT, 1, np.float64).truncated is None
    assert Gaussian().offers == {"dW", "dZ", "coin"} and Gaussian(truncation=1).offers == {"dW"}


# --- the three-point law --------------------------------------------------------------------------


def three_point_moments(drawn, h):
    """Values whose means are known: Î alone, and the products of Rößler's class for two noises."""
    first, second = drawn.dW[:, 0], drawn.dW[:, 1]
    lower, upper = drawn.mixed[:, 1, 0], drawn.mixed[:, 0, 1]
    return {
        "E I": (first, 0),
        "E I^2": (first**2, h),
        "E I^3": (first**3, 0),
        "E I^4": (first**4, 3 * h**2),
        "E I^6": (first**6, 9 * h**3),
        "E I_1 I_2": (first * second, 0),
        "E I_21": (lower, 0),
        "E I_21^2": (lower**2, h**2),
        "E I_21 I_12": (lower * upper, -(h**2)),
        "E I_2 I_1 I_21": (second * first * lower, 0),
        "E I_2 I_21": (second * lower, 0),
    }


def test_three_point_moments():
    moments = three_point_moments(sample(ThreePoint(), 2**20, 2), DT)
    for name, (values, expected) in moments.items():
        assert sigmas(values, expected) < SIGMAS, name


def test_three_point_moments_can_fail():
    drawn = sample(ThreePoint(), 2**20, 2)
    assert sigmas(1.02 * drawn.dW[:, 0] ** 2, DT) > SIGMAS
    # The other convention, −I_k Ĩ_l for l > k: I_kl and I_lk are then uncorrelated.
    other_two = np.sqrt(DT) * np.where(np.random.default_rng(0).random(2**20) < 0.5, 1, -1)
    upper = -drawn.dW[:, 0] * other_two
    other = drawn._replace(mixed=drawn.mixed.copy())
    other.mixed[:, 0, 1] = upper
    values, expected = three_point_moments(other, DT)["E I_21 I_12"]
    assert sigmas(values, expected) > SIGMAS


def test_three_point_values_and_probabilities():
    drawn = sample(ThreePoint(), 2**21)
    values, counts = np.unique(drawn.dW, return_counts=True)
    np.testing.assert_array_equal(values, np.array([-1, 0, 1]) * np.sqrt(3 * DT))
    expected = drawn.dW.size * np.array([1, 4, 1]) / 6
    assert stats.chisquare(counts, expected).pvalue > P_VALUE
    wrong = drawn.dW.size * np.array([0.98, 4.04, 0.98]) / 6
    assert stats.chisquare(counts, wrong).pvalue < P_VALUE


@jax.jit
@jax.vmap
def both_steps(word):
    """What the two steps of one word draw."""
    return _from_words((word, word, word, word))[:2]


def outcomes_of(words):
    """Three-point variables and the signs of the two-point ones of both steps of some words."""
    steps = both_steps(jnp.asarray(words, jnp.uint32))
    return [(np.asarray(one.dW), np.asarray(one.mixed)) for one in steps]


def _from_words(words):
    """What a block of words for two noises, all alike, makes of them."""
    rows = tuple(jnp.stack([word, word]) for word in words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kinds, "stream_words", lambda *args: rows)
        return ThreePoint().draw_together(0, 0, 0, 1 / 3, 2, np.float64)


def throws(word):
    """The die and the coin of both steps of a word, in exact arithmetic."""
    rest, found = int(word), []
    for _ in range(2):
        face, rest = divmod(6 * rest, 2**32)
        coin, rest = divmod(2 * rest, 2**32)
        found.append((face, coin))
    return found


def test_three_point_variables_are_throws_of_a_die_and_a_coin():
    """Twice per word; words at the edges of the faces included."""
    rng = np.random.default_rng(0)
    edges = [round(k * 2**32 / 72) + shift for k in range(72) for shift in (-3, 3)]
    words = np.concatenate([rng.integers(0, 2**32, 2000), np.array(edges[1:])]).astype(np.uint32)
    exact = [throws(word) for word in words]
    for step, (dW, mixed) in enumerate(outcomes_of(words)):
        face = np.array([throw[step][0] for throw in exact])
        coin = np.array([throw[step][1] for throw in exact])
        value = np.where(face == 0, 1.0, np.where(face == 1, -1.0, 0.0))
        np.testing.assert_allclose(dW[:, 0], value, atol=1e-15)
        sign = np.where(coin == 0, 1.0, -1.0)
        np.testing.assert_allclose(mixed[:, 1, 0], value * sign / np.sqrt(3), atol=1e-15)


def test_three_point_probabilities_are_sixths():
    """By the words between which a value changes: to 32 bits, and after one throw to 28."""

    def values(word):
        return [round(float(dW[0, 0])) for dW, _ in outcomes_of([word])]

    def first_other(low, high, step):
        """The first word in (low, high] whose value is not that of `low`."""
        start = values(low)[step]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if values(middle)[step] == start else (low, middle)
        return high

    plus = first_other(0, 2**31, 0)
    minus = first_other(plus, ONES, 0) - plus
    assert plus == minus and abs(plus / 2**32 - 1 / 6) < 2.0**-32
    second = first_other(0, round(2**32 / 12) - 1, 1)
    assert abs(12 * second / 2**32 - 1 / 6) < 2.0**-28


def test_mixed_increments_follow_the_antisymmetric_convention():
    noises = 4
    drawn = sample(ThreePoint(), 1000, noises)
    # Step 7 is the last one of the eight of block 0: the second of the last word.
    words = jax.vmap(lambda i: stream_words(Stream.THREE_POINT, 1, i, 0, noises)[3])(
        jnp.arange(1000)
    )
    coins = [[throws(word)[1][1] for word in row] for row in np.asarray(words)]
    two = np.sqrt(DT) * np.where(np.array(coins) == 0, 1, -1)
    for k in range(noises):
        for l in range(noises):
            below, above = drawn.dW[:, k] * two[:, l], -drawn.dW[:, l] * two[:, k]
            expected = below if l < k else above if l > k else np.zeros(1000)
            np.testing.assert_allclose(drawn.mixed[:, k, l], expected, rtol=1e-15)
    np.testing.assert_array_equal(drawn.mixed, -np.swapaxes(drawn.mixed, 1, 2))
    other_convention = -drawn.dW[:, 0] * two[:, 1]
    assert not np.allclose(drawn.mixed[:, 0, 1], other_convention)


def test_signs_are_independent_of_values():
    drawn = sample_groups(ThreePoint(), 2**16, 2)
    kind = np.sign(drawn.dW)
    known = (drawn.dW != 0).all(axis=-1)
    # I_10 = Î_1 Ĩ_0, so where neither variable is zero the sign of Ĩ_0 can be seen.
    sign = np.where(known, np.sign(drawn.mixed[..., 1, 0]) * kind[..., 1], 0)

    def p_value(kind, sign):
        table = [[np.sum((kind == i) & (sign == j)) for j in (-1, 1)] for i in (-1, 1)]
        return stats.chi2_contingency(np.array(table)).pvalue

    for other in (kind[..., 0], kind[..., 1], np.roll(kind[..., 0], 1, axis=0)):
        assert p_value(other, sign) > P_VALUE
    assert stats.binomtest(int(np.sum(sign == 1)), int(known.sum())).pvalue > P_VALUE
    spoiled = np.where(known & (np.arange(2**16) % 20 == 0), kind[..., 0], sign)
    assert p_value(kind[..., 0], spoiled) < P_VALUE


def test_signs_of_the_increments_alone():
    scaled = sample(ThreePoint(), 1000, 1)
    signs = sample(Signs(), 1000, 1)
    np.testing.assert_array_equal(np.sign(scaled.dW), signs.dW)


# --- enumeration ----------------------------------------------------------------------------------


@pytest.mark.parametrize("noises", [0, 1, 2, 3])
def test_enumeration_is_a_probability(noises):
    outcomes, weights = enumerate_three_point(noises, DT)
    size = 3**noises * 2 ** max(noises - 1, 0)
    assert outcomes.dW.shape == (size, noises) and outcomes.mixed.shape == (size, noises, noises)
    assert abs(weights.sum() - 1) < 1e-15 and (weights > 0).all()
    every = np.concatenate([outcomes.dW, outcomes.mixed.reshape(size, noises**2)], axis=1)
    assert len(np.unique(outcomes.dW, axis=0)) == 3**noises
    assert len(np.unique(every, axis=0)) <= size


def test_enumeration_gives_exact_moments():
    outcomes, weights = enumerate_three_point(2, DT)
    for name, (values, expected) in three_point_moments(outcomes, DT).items():
        assert weights @ values == pytest.approx(expected, abs=1e-15), name
    uniform = np.full_like(weights, 1 / len(weights))
    assert abs(uniform @ outcomes.dW[:, 0] ** 2 - DT) > 0.1 * DT


def test_enumeration_holds_every_draw_with_its_frequency():
    outcomes, weights = enumerate_three_point(2, DT)
    drawn = sample(ThreePoint(), 2**18, 2)

    def codes(increments):
        """One integer per distinct (Î, I_kl)."""
        columns = [increments.dW[:, 0], increments.dW[:, 1], increments.mixed[:, 1, 0]]
        return sum((np.sign(column).astype(int) + 1) * 3**i for i, column in enumerate(columns))

    expected = np.bincount(codes(outcomes), weights, minlength=27)
    counts = np.bincount(codes(drawn), minlength=27)
    assert counts[expected == 0].sum() == 0
    possible = expected > 0
    assert (
        stats.chisquare(counts[possible], drawn.dW.shape[0] * expected[possible]).pvalue > P_VALUE
    )


# --- zero and recorded ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zero_noise_offers_everything_and_is_zero(dtype):
    drawn = Zero().draw(0, 0, 0, DT, 2, dtype)
    assert (drawn.dW.shape, drawn.dZ.shape, drawn.mixed.shape) == ((2,), (2,), (2, 2))
    fields = (drawn.dW, drawn.dZ, drawn.mixed)
    assert all(field.dtype == dtype and not field.any() for field in fields)
    assert Zero().offers == {"dW", "dZ", "mixed", "area", "coin"} and drawn.truncated is None
    assert drawn.area.shape == (2, 2) and not drawn.area.any() and drawn.coin == 1


def test_recorded_noise_replays_what_was_recorded_bit_for_bit():
    paths, steps, noises = 3, 5, 2
    draw = jax.jit(lambda i, n: Gaussian().draw(8, i, n, DT, noises, np.float64))
    many = jax.jit(jax.vmap(lambda i: jax.vmap(lambda n: draw(i, n))(jnp.arange(steps))))
    recorded = Recorded(jax.tree.map(np.asarray, many(jnp.arange(paths))))
    replay = jax.jit(lambda i, n: recorded.draw(0, i, n, DT, noises, np.float64))
    for i in range(paths):
        for n in range(steps):
            kept = jax.tree.map(lambda x, i=i, n=n: x[i, n], recorded.increments)
            assert same_bits(replay(i, n), kept)
            assert_close(kept, draw(i, n))
    past_the_end = recorded.draw_together(0, 0, 1, DT, noises, np.float64)[3]
    np.testing.assert_array_equal(past_the_end.dW, recorded.increments.dW[0, -1])
    assert recorded.offers == {"dW", "dZ", "coin"}
    recorded.check(steps, paths, noises)


def test_recorded_path_is_shared_by_all_paths():
    dW = np.arange(10.0).reshape(5, 2)
    recorded = Recorded(Increments(dW, mixed=np.zeros((5, 2, 2)), truncated=np.arange(5)))
    recorded.check(steps=5, paths=10**6, noises=2, dt=DT)
    drawn = jax.vmap(lambda i: recorded.draw(0, i, 3, DT, 2, np.float32))(jnp.arange(4))
    assert drawn.dW.dtype == np.float32 and drawn.dZ is None
    np.testing.assert_array_equal(drawn.dW, np.broadcast_to(dW[3], (4, 2)))
    assert drawn.truncated.tolist() == [3] * 4
    assert recorded.offers == {"dW", "mixed"}


# --- paths and coarsening -------------------------------------------------------------------------


def test_brownian_path_is_what_a_run_draws():
    path = brownian_path(9, 2**33 + 1, DT, 20, 3)
    assert path.dW.shape == path.dZ.shape == (20, 3)
    for n in (0, 7, 19):
        row = Gaussian().draw(9, 2**33 + 1, n, DT, 3, np.float64)
        assert_close(Increments(path.dW[n], path.dZ[n]), row)
    mapped = jax.jit(jax.vmap(lambda i: brownian_path(9, i, DT, 20, 3)))(jnp.arange(4) + 2**33)
    assert_close(jax.tree.map(lambda x: x[1], mapped), path)
    shorter = brownian_path(9, 2**33 + 1, DT, 18, 3)
    assert_close(shorter, jax.tree.map(lambda x: x[:18], path))


def test_paths_are_float64_without_a_global_switch():
    on = brownian_path(9, 1, DT, 16, 2)
    jax.config.update("jax_enable_x64", False)
    off = brownian_path(9, 1, DT, 16, 2)
    coarse = coarsen(off, DT, 4)
    outcomes, weights = enumerate_three_point(2, DT)
    for array in (*off[:2], *coarse[:2], outcomes.dW, outcomes.mixed, weights):
        assert isinstance(array, np.ndarray) and array.dtype == np.float64
    assert same_bits(on, off)
    assert brownian_path(9, 1, DT, 16, 2, np.float32).dW.dtype == np.float32
    assert coarsen(Increments(np.ones((4, 1), np.float32)), DT, 2).dW.dtype == np.float32


def test_coarsening_two_halves_is_the_formula():
    fine = brownian_path(10, 0, DT, 12, 2)
    coarse = coarsen(fine, DT, 2)
    (wa, wb), (za, zb) = ((x[0::2], x[1::2]) for x in (fine.dW, fine.dZ))
    np.testing.assert_allclose(coarse.dW, wa + wb, rtol=1e-15)
    np.testing.assert_allclose(coarse.dZ, za + zb + DT * wa, rtol=1e-14)
    assert not np.allclose(coarse.dZ, za + zb + DT * wb)


@pytest.mark.parametrize(("first", "second"), [(2, 2), (3, 4), (4, 3), (1, 12), (12, 1)])
def test_coarsening_twice_is_coarsening_once(first, second):
    fine = brownian_path(11, 0, DT, 24, 2)
    fine = jax.tree.map(lambda x: jnp.stack([x, 2.0 * x]), fine)
    twice = coarsen(coarsen(fine, DT, first), first * DT, second)
    once = coarsen(fine, DT, first * second)
    assert once.dW.shape == (2, 24 // (first * second), 2)
    np.testing.assert_allclose(twice.dW, once.dW, rtol=0, atol=1e-14)
    np.testing.assert_allclose(twice.dZ, once.dZ, rtol=0, atol=1e-14)
    if first > 1 and second > 1:
        forgetful = coarsen(coarsen(fine, DT, first), DT, second)
        assert not np.allclose(forgetful.dZ, once.dZ)


def test_coarse_dZ_is_the_time_integral_of_the_fine_path():
    steps, paths, duration = 1024, 64, 2.0
    dt = duration / steps
    fine = jax.jit(jax.vmap(lambda i: brownian_path(12, i, dt, steps, 1)))(jnp.arange(paths))
    exact = np.asarray(coarsen(fine, dt, steps).dZ)[:, 0, 0]
    W = np.concatenate([np.zeros((paths, 1)), np.cumsum(fine.dW[:, :, 0], axis=1)], axis=1)
    riemann = np.trapezoid(W, dx=dt, axis=1)
    # Given W at the grid, each ΔZ_i is independent with variance dt³/12.
    scatter = np.sqrt(steps * dt**3 / 12)
    assert sigmas((riemann - exact) ** 2, scatter**2) < SIGMAS
    assert np.abs(riemann - exact).max() < SIGMAS * scatter
    no_memory = np.sum(fine.dZ[:, :, 0], axis=1)
    assert np.abs(riemann - no_memory).max() > SIGMAS * scatter


def test_coarsening_adds_counts_and_drops_mixed():
    fine = Increments(np.ones((6, 2)), None, np.ones((6, 2, 2)), np.arange(6))
    coarse = coarsen(fine, DT, 3)
    assert coarse.dZ is None and coarse.mixed is None
    assert coarse.truncated.tolist() == [3, 12]
    np.testing.assert_array_equal(coarse.dW, np.full((2, 2), 3.0))


# --- descriptions and errors ----------------------------------------------------------------------


def test_descriptions_are_one_line_and_distinct():
    lines = [noise.describe() for noise in (*KINDS, Recorded(Increments(np.zeros((4, 1)))))]
    assert len(set(lines)) == 5 and not any("\n" in line for line in lines)
    assert "k = 1" in Gaussian(truncation=1).describe() and "(4, 1)" in lines[-1]


def test_kinds_are_static_arguments_and_accept_one_form_of_check():
    assert Gaussian(truncation=2) == Gaussian(truncation=2) and hash(ThreePoint()) == hash(
        ThreePoint()
    )
    for noise in (*KINDS, Recorded(Increments(np.zeros((4, 1))))):
        hash(noise)
        noise.check(dt=0.01, steps=4, paths=3, noises=1)


@pytest.mark.parametrize("k", [0.5, 0, -1, np.nan, np.inf, True])
def test_truncation_below_one_is_refused(k):
    with pytest.raises(ValueError, match=r"truncation=.* needs k >= 1; write truncation=1"):
        Gaussian(truncation=k)


@pytest.mark.parametrize("dt", [1.0, 2.5])
def test_truncation_with_a_step_of_one_or_more_is_refused(dt):
    with pytest.raises(ValueError, match=rf"dt={dt} with truncation=1: .*needs dt < 1"):
        Gaussian(truncation=1).check(dt)
    Gaussian().check(dt)


@pytest.mark.parametrize(
    ("dt", "share", "left"), [(0.9, 0.6462, 0.1603), (0.5, 0.2390, 0.6226), (0.1, 0.0319, 0.9437)]
)
def test_truncation_that_takes_noise_away_is_warned_of(dt, share, left):
    told = f"cuts off {share:.1%} of the increments and takes {1 - left:.1%} of the variance"
    with pytest.warns(UserWarning, match=told):
        Gaussian(truncation=1).check(dt)
    assert truncation.truncated_share(1, dt) == pytest.approx(share, abs=5e-5)
    assert truncation.truncated_variance(1, dt) == pytest.approx(left, abs=5e-5)
    Gaussian(truncation=1).check(dt, noises=0)


def test_truncation_is_warned_of_above_one_increment_in_a_hundred():
    Gaussian(truncation=1).check(0.036)
    with pytest.warns(UserWarning, match=r"truncation=1 at dt=0\.037 cuts off 1\.0%"):
        Gaussian(truncation=1).check(0.037)


@pytest.mark.parametrize("dt", [1e-4, 0.01, 0.1, 0.5, 0.9, 0.999, 1 - 1e-15])
def test_what_is_recommended_is_the_smallest_harmless_truncation(dt):
    k = truncation.harmless_truncation(dt)
    Gaussian(truncation=k).check(dt)
    assert 1 - truncation.truncated_variance(k, dt) < 1e-3
    assert k == 1 or truncation.bound(k - 1, dt) < truncation.HARMLESS_BOUND
    assert truncation.harmless_truncation(1.0) is truncation.harmless_truncation(2.0) is None


@pytest.mark.parametrize("noise", KINDS, ids=KIND_NAMES)
def test_runs_beyond_the_counter_are_refused(noise):
    for dt in (0.0, -0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match="the step size must be positive and finite"):
            noise.check(dt)
    for sizes in ({"steps": 2**32}, {"paths": 2**63}, {"noises": 2**29}, {"steps": -1}):
        with pytest.raises(ValueError, match=r"give an integer in \[0, 2\*\*"):
            noise.check(0.1, **sizes)
    with pytest.raises(TypeError, match=r"steps=1\.5: give an integer"):
        noise.check(0.1, steps=1.5)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((-1, 0, 0), ValueError, r"seed=-1: give an integer in \[0, 2\*\*64\)"),
        ((2**64, 0, 0), ValueError, r"seed=18446744073709551616: .*2\*\*64"),
        ((0.5, 0, 0), TypeError, "seed=0.5: give an integer, for example seed=0"),
        ((True, 0, 0), TypeError, "seed=True: give an integer"),
        ((0, -1, 0), ValueError, "path=-1: give an integer"),
        ((0, 2**63, 0), ValueError, r"path=9223372036854775808: .*2\*\*63"),
        ((0, 0, 2**32), ValueError, r"step=4294967296: .*2\*\*32"),
        ((0, 1.0, 0), TypeError, "path=1.0: give an integer"),
        ((0, jnp.arange(3), 0), TypeError, r"path has shape \(3,\).*use jax.vmap"),
        ((0, 0, jnp.asarray([0.5])), TypeError, r"step has shape \(1,\) and dtype float64"),
    ],
)
def test_draws_outside_the_counter_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Gaussian().draw(*arguments, DT, 1, np.float64)


@pytest.mark.parametrize("noise", KINDS, ids=KIND_NAMES)
def test_types_that_cannot_be_drawn_are_refused(noise):
    with pytest.raises(TypeError, match="dtype must be float64 or float32"):
        noise.draw(0, 0, 0, DT, 1, np.int32)
    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match=r"float64 .* while x64 is off: draw them inside `with jax"),
    ):
        noise.draw(0, 0, 0, DT, 1, np.float64)


def test_recordings_that_do_not_fit_are_refused():
    many = Recorded(Increments(np.zeros((2, 5, 1))))
    with pytest.raises(ValueError, match="takes 6 steps and 5 are recorded: shorten"):
        many.check(6, 2, 1)
    with pytest.raises(ValueError, match="has 3 paths and 2 are recorded: take fewer"):
        many.check(5, 3, 1)
    with pytest.raises(ValueError, match=r"\(2, 5, 1\), so 1 noises, and the system has 2"):
        many.check(5, 2, 2)
    with pytest.raises(ValueError, match="the system has 2"):
        many.draw(0, 0, 0, DT, 2, np.float64)
    with pytest.raises(ValueError, match=r"shape \(5,\): give \(steps, m\)"):
        Recorded(Increments(np.zeros(5))).check(5, 1, 1)
    with pytest.raises(
        ValueError, match=r"recorded dZ has shape \(4, 1\).* must have shape \(5, 1\)"
    ):
        Recorded(Increments(np.zeros((5, 1)), np.zeros((4, 1)))).check(5, 1, 1)
    with pytest.raises(TypeError, match=r"given a ndarray: write Recorded\(Increments\(dW\)\)"):
        Recorded(np.zeros((5, 1)))
    with pytest.raises(TypeError, match="dW has complex128 entries: give real numbers"):
        Recorded(Increments(np.zeros((5, 1), complex)))
    with pytest.raises(TypeError, match="dZ has <U1 entries: give real numbers"):
        Recorded(Increments(np.zeros((2, 1)), dZ=[["a"], ["b"]]))
    with pytest.raises(ValueError, match="dW must be an array, and its rows differ"):
        Recorded(Increments([[0.1], [0.1, 0.2]]))


def test_lists_and_whole_numbers_are_recorded_and_coarsened():
    for given in ([[1], [2]], [[1.0], [2.0]], np.array([[1], [2]])):
        recorded = Recorded(Increments(given)).draw(0, 0, 1, DT, 1, np.float64)
        np.testing.assert_array_equal(recorded.dW, [2.0])
        np.testing.assert_array_equal(coarsen(Increments(given), DT, 2).dW, [[3.0]])


@pytest.mark.parametrize(
    ("shape", "factor", "error", "message"),
    [
        ((6, 1), 4, ValueError, "factor=4 does not divide the 6 steps"),
        ((6, 1), 0, ValueError, "factor=0 does not divide"),
        ((6, 1), -2, ValueError, "factor=-2: give an integer"),
        ((6, 1), 2.0, TypeError, "factor=2.0: give an integer"),
        ((6,), 2, ValueError, r"dW has shape \(6,\): give dW of shape \(..., steps, m\)"),
    ],
)
def test_coarsening_that_cannot_be_is_refused(shape, factor, error, message):
    with pytest.raises(error, match=message):
        coarsen(Increments(np.zeros(shape)), DT, factor)


def test_enumeration_of_too_many_noises_is_refused():
    with pytest.raises(ValueError, match=r"noises=9 has .*at most 8 noises, or sample"):
        enumerate_three_point(9, DT)
    with pytest.raises(ValueError, match="noises=-1"):
        stream_words(Stream.GAUSSIAN, 0, 0, 0, -1)
