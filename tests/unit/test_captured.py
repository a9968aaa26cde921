"""Functions are known by what they read: what is compiled follows a change of it."""

import ctypes
import datetime
import io
import os
import random
import sys
import threading
from array import array
from collections import OrderedDict, UserDict, deque
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import partial, wraps
from time import time as clock
from types import ModuleType, SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
from dalembert.captured import BUDGET, _is_library, captured
from dalembert.theory.generator import expectation_series

STIFFNESS = 1.0
TABLE = np.array([1.0, 2.0])
SETTINGS = {"stiffness": 1.0}
MODEL = SimpleNamespace(stiffness=1.0)


def by_global(q, p):
    return p[0] ** 2 / 2 + STIFFNESS * q[0] ** 2 / 2


def by_function(q, p):
    return by_global(q, p)


class Well:
    def __init__(self, stiffness):
        self.stiffness = stiffness

    def energy(self, q, p):
        return p[0] ** 2 / 2 + self.stiffness * q[0] ** 2 / 2


CHANGES = {
    "a global": (by_global, lambda patch: patch.setattr(f"{__name__}.STIFFNESS", 4.0)),
    "through another": (by_function, lambda patch: patch.setattr(f"{__name__}.STIFFNESS", 4.0)),
    "an array": (
        lambda q, p: TABLE[0] * q[0],
        lambda patch: patch.setattr(f"{__name__}.TABLE", np.array([4.0, 2.0])),
    ),
    "a dict": (
        lambda q, p: SETTINGS["stiffness"] * q[0],
        lambda patch: patch.setitem(SETTINGS, "stiffness", 4.0),
    ),
    "an attribute": (
        lambda q, p: MODEL.stiffness * q[0],
        lambda patch: patch.setattr(MODEL, "stiffness", 4.0),
    ),
}


@dataclass
class Spring:
    stiffness: float = 1.0


class Family:
    stiffness = 1.0


class Child(Family):
    pass


class Slotted:
    __slots__ = ("stiffness",)

    def __init__(self):
        self.stiffness = 1.0


class Colour(Enum):
    RED = 1


def later(owner, name, value):
    return lambda patch: patch.setattr(owner, name, value)


def of_a_class():
    return lambda q, p: Family.stiffness * q[0], later(Family, "stiffness", 4.0)


def inherited():
    child = Child()
    return lambda q, p: child.stiffness * q[0], later(Family, "stiffness", 4.0)


def in_a_slot():
    slotted = Slotted()
    return lambda q, p: slotted.stiffness * q[0], later(slotted, "stiffness", 4.0)


def in_a_dataclass():
    spring = Spring()
    return lambda q, p: spring.stiffness * q[0], later(spring, "stiffness", 4.0)


def of_an_enum():
    return lambda q, p: Colour.RED.value * q[0], later(Colour.RED, "_value_", 4)


def of_a_method():
    class Box:
        def value(self):
            return STIFFNESS

    box = Box()
    return lambda q, p: box.value() * q[0], later(sys.modules[__name__], "STIFFNESS", 4.0)


def of_a_property():
    class Box:
        value = property(lambda self: STIFFNESS)

    box = Box()
    return lambda q, p: box.value * q[0], later(sys.modules[__name__], "STIFFNESS", 4.0)


def keyword_only():
    def fun(q, p, *, stiffness=1.0):
        return stiffness * q[0]

    return fun, later(fun, "__kwdefaults__", {"stiffness": 4.0})


def of_the_function():
    def fun(q, p):
        return fun.stiffness * q[0]

    fun.stiffness = 1.0
    return fun, later(fun, "stiffness", 4.0)


def its_code():
    def fun(q, p):
        return q[0]

    return fun, later(fun, "__code__", (lambda q, p: p[0]).__code__)


def of_a_module():
    module = ModuleType("settings_of_a_user")
    module.inner = ModuleType("settings_of_a_user.inner")
    module.inner.stiffness = 1.0
    return lambda q, p: module.inner.stiffness * q[0], later(module.inner, "stiffness", 4.0)


def of_a_module_imported_inside(name="settings_of_a_user"):
    module = sys.modules[name] = ModuleType(name)
    module.stiffness = 1.0

    def fun(q, p):
        import settings_of_a_user  # type: ignore[import-not-found]

        return settings_of_a_user.stiffness * q[0]

    return fun, later(module, "stiffness", 4.0)


def nested(depth=40):
    numbers = {"k": 1.0}

    def innermost(q, p):
        return numbers["k"] * q[0]

    def around(inner):
        return lambda q, p: inner(q, p)

    fun = innermost
    for _ in range(depth):
        fun = around(fun)
    return fun, lambda patch: patch.setitem(numbers, "k", 4.0)


def by_jit():
    numbers = {"k": 1.0}
    fun = jax.jit(lambda q, p: numbers["k"] * q[0])
    return fun, lambda patch: patch.setitem(numbers, "k", 4.0)


def of_a_rule():
    numbers = {"k": 1.0}
    square = jax.custom_jvp(lambda x: x**2)
    square.defjvp(lambda x, dx: (x[0] ** 2, numbers["k"] * x[0] * dx[0]))
    return lambda q, p: square(q[0]), lambda patch: patch.setitem(numbers, "k", 4.0)


def by_grad():
    numbers = {"k": 1.0}
    fun = jax.grad(lambda q, p: numbers["k"] * q[0])
    return fun, lambda patch: patch.setitem(numbers, "k", 4.0)


def bound_to_a_container():
    numbers = {"stiffness": 1.0}
    get = numbers.get
    return lambda q, p: get("stiffness") * q[0], lambda patch: patch.setitem(
        numbers, "stiffness", 4.0
    )


class Meta(type):
    stiffness = 1.0


class Made(metaclass=Meta):
    __stiffness__ = 1.0


def of_a_metaclass():
    return lambda q, p: Made.stiffness * q[0], later(Meta, "stiffness", 4.0)


def of_a_metaclass_of_a_class():
    made = Made()
    return lambda q, p: type(made).stiffness * q[0], later(Meta, "stiffness", 4.0)


def between_underscores():
    return lambda q, p: Made.__stiffness__ * q[0], later(Made, "__stiffness__", 4.0)


def by_the_text_of_its_name():
    module = ModuleType("settings_of_a_user")
    module.stiffness = 1.0
    return lambda q, p: getattr(module, "stiffness") * q[0], later(module, "stiffness", 4.0)  # noqa: B009


def by_the_text_of_a_global():
    return lambda q, p: globals()["STIFFNESS"] * q[0], later(
        sys.modules[__name__], "STIFFNESS", 4.0
    )


def of_a_module_that_answers():
    module, numbers = ModuleType("settings_of_a_user"), {"stiffness": 1.0}
    module.__getattr__ = lambda name: numbers[name]
    return lambda q, p: module.stiffness * q[0], lambda patch: patch.setitem(
        numbers, "stiffness", 4.0
    )


def of_a_module_with_a_class():
    class Settings(ModuleType):
        stiffness = 1.0

    module = Settings("settings_of_a_user")
    return lambda q, p: module.stiffness * q[0], later(Settings, "stiffness", 4.0)


def of_a_float():
    class Length(float):
        unit = 1.0

    length = Length(2.0)
    length.scale = 1.0
    return lambda q, p: length * length.scale * q[0], later(length, "scale", 4.0)


def named_like_one_of_a_library():
    numbers = {"k": 1.0}
    sine = jax.jit(wraps(np.sin)(lambda x: numbers["k"] * jnp.sin(x)))
    sine.__module__ = "jax.numpy"
    return lambda q, p: sine(q[0]), lambda patch: patch.setitem(numbers, "k", 4.0)


def container(before, change):
    """A container that is changed in place, and a copy that takes its place afterwards."""

    def case():
        box = SimpleNamespace(content=before())

        def apply(patch):
            changed = before()
            change(changed)
            patch.setattr(box, "content", changed)

        return lambda q, p: box.content, apply

    return case


def replaced(before, after):
    def case():
        box = SimpleNamespace(content=before)
        return lambda q, p: box.content, later(box, "content", after)

    return case


OBJECTS = np.array([1.0, [2.0]], dtype=object)
MORE_CHANGES = {
    "a class": of_a_class,
    "an inherited attribute": inherited,
    "a slot": in_a_slot,
    "a dataclass": in_a_dataclass,
    "an enum": of_an_enum,
    "a method": of_a_method,
    "a property": of_a_property,
    "a keyword-only default": keyword_only,
    "a function's attribute": of_the_function,
    "a function's code": its_code,
    "a module": of_a_module,
    "a module imported inside": of_a_module_imported_inside,
    "many functions deep": nested,
    "inside jit": by_jit,
    "a derivative rule": of_a_rule,
    "inside grad": by_grad,
    "a method of a dict": bound_to_a_container,
    "a metaclass": of_a_metaclass,
    "a metaclass of an instance's class": of_a_metaclass_of_a_class,
    "an attribute between underscores": between_underscores,
    "the text of a name": by_the_text_of_its_name,
    "the text of a global": by_the_text_of_a_global,
    "a module that answers to names": of_a_module_that_answers,
    "a module with a class": of_a_module_with_a_class,
    "an attribute of a float": of_a_float,
    "a function named like one of a library": named_like_one_of_a_library,
    "a set": container(lambda: {1.0}, lambda x: x.add(4.0)),
    "a frozenset": replaced(frozenset({1.0}), frozenset({4.0})),
    "a deque": container(lambda: deque([1.0]), lambda x: x.append(4.0)),
    "array.array": container(lambda: array("d", [1.0]), lambda x: x.append(4.0)),
    "a bytearray": container(lambda: bytearray(b"1"), lambda x: x.append(4)),
    "an OrderedDict": container(lambda: OrderedDict(a=1, b=2), lambda x: x.move_to_end("a")),
    "a UserDict": container(lambda: UserDict(a=1), lambda x: x.update(a=4)),
    "keys that are no text": container(lambda: {(1, 2): 1}, lambda x: x.update({(1, 2): 4})),
    "an array of objects": replaced(OBJECTS, np.array([1.0, [4.0]], dtype=object)),
    "a masked array": replaced(np.ma.array([1.0], mask=[0]), np.ma.array([1.0], mask=[1])),
    "a JAX array": replaced(jnp.ones(2), jnp.zeros(2)),
    "a polynomial": container(lambda: np.poly1d([1.0, 2.0]), lambda x: x.__setitem__(0, 4.0)),
    "the sign of zero": replaced(0.0, -0.0),
    "a fraction": replaced(Fraction(1, 2), Fraction(1, 3)),
    "a slice": replaced(slice(0, 1), slice(1, 2)),
    "a partial": replaced(partial(by_global, p=1), partial(by_global, p=2)),
    "a type": replaced(1, 1.0),
}


@pytest.mark.parametrize("case", MORE_CHANGES)
def test_more_changes_are_seen(case, monkeypatch):
    fun, change = MORE_CHANGES[case]()
    assert_seen(fun, change, monkeypatch)
    sys.modules.pop("settings_of_a_user", None)


def assert_seen(fun, change, monkeypatch):
    before = captured(fun)
    assert before == captured(fun) and hash(before) == hash(captured(fun))
    change(monkeypatch)
    assert captured(fun) != before
    monkeypatch.undo()


def test_which_of_two_equal_containers_is_read_twice_is_seen():
    first, second = [1.0], [2.0]
    box = SimpleNamespace(a=first, b=second, c=first)

    def fun(q, p):
        return box.c[0] * q[0]

    before = captured(fun)
    box.c = second
    assert captured(fun) != before


HIDDEN = ContextVar("HIDDEN", default=1.0)


def by_hidden(q, p):
    return p[0] ** 2 / 2 + HIDDEN.get() * q[0] ** 2 / 2


def test_what_is_hidden_in_another_function_does_not_count():
    """Two functions that compute the same today are not the same if they may change apart."""

    def spring(box):
        return da.System(H=lambda q, p: p[0] ** 2 / 2 + box.value * q[0] ** 2 / 2, dim=1)

    def end(system):
        return da.exact_moments(system, da.heun(), ([2.0], [0.0]), dt=0.1, steps=1).mean[1]

    one, other = ctypes.c_double(4.0), ctypes.c_double(1.0)
    first, second = spring(one), spring(other)
    stiff = da.step(first, da.heun(), [2.0], [0.0], 0.1, [])[1][0]
    one.value, other.value = 1.0, 4.0
    np.testing.assert_allclose(end(second), stiff, rtol=1e-13)


def test_what_is_hidden_is_traced_again():
    assert captured(by_hidden) != captured(by_hidden), "without a trace it is never the same"
    assert captured(by_hidden, lambda: "trace") == captured(by_hidden, lambda: "trace")
    system = da.System(H=by_hidden, dim=1)

    def step():
        return da.step(system, da.stormer_verlet(), [2.0], [0.0], 0.1, [])[1][0]

    soft, key = step(), system.key
    assert key == system.key
    token = HIDDEN.set(4.0)
    try:
        np.testing.assert_allclose(step(), 4 * soft, rtol=0.1)
    finally:
        HIDDEN.reset(token)
    assert step() == soft


class Point(ctypes.Structure):
    _fields_ = [("k", ctypes.c_double)]


class Dice(random.Random):
    """A generator that is written in C, with attributes."""


def in_thread(k):
    local = threading.local()
    local.k = k
    return local


BOXES = {
    "a number of ctypes": (ctypes.c_double, lambda x: x.value, lambda x: setattr(x, "value", 4.0)),
    "an array of ctypes": (
        lambda k: (ctypes.c_double * 2)(k, k),
        lambda x: x[0],
        lambda x: x.__setitem__(0, 4.0),
    ),
    "a structure": (Point, lambda x: x.k, lambda x: setattr(x, "k", 4.0)),
    "a text": (
        lambda k: io.StringIO(str(k)),
        lambda x: float(x.getvalue()),
        lambda x: x.seek(0) or x.write("4.0"),
    ),
    "bytes": (
        lambda k: io.BytesIO(str(k).encode()),
        lambda x: float(x.getvalue()),
        lambda x: x.seek(0) or x.write(b"4.0"),
    ),
    "attributes of a thread": (in_thread, lambda x: x.k, lambda x: setattr(x, "k", 4.0)),
    "random numbers": (
        lambda k: Dice(0),
        lambda x: x.getstate()[1][1] / 2**31,
        lambda x: x.seed(1),
    ),
    "random numbers of NumPy": (
        lambda k: np.random.default_rng(0),
        lambda x: x.bit_generator.state["state"]["state"] / 2**127,
        lambda x: x.random(),
    ),
}


@pytest.mark.parametrize("case", BOXES)
def test_what_is_inside_a_thing_written_in_c_is_traced_again(case):
    make, read, change = BOXES[case]
    box = make(1.0)
    assert captured(lambda: box) != captured(lambda: box)
    system = da.System(H=lambda q, p: p[0] ** 2 / 2 + read(box) * q[0] ** 2 / 2, dim=1)

    def computed():
        stepped = da.step(system, da.stormer_verlet(), [2.0], [0.0], 0.1, [])[1][0]
        moments = da.exact_moments(system, da.stormer_verlet(), ([2.0], [0.0]), dt=0.1, steps=1)
        return stepped, moments.mean[1]

    def expected():
        k = read(box)
        known = da.System(H=lambda q, p: p[0] ** 2 / 2 + k * q[0] ** 2 / 2, dim=1)
        return da.step(known, da.stormer_verlet(), [2.0], [0.0], 0.1, [])[1][0]

    before = expected()
    np.testing.assert_allclose(computed(), before, rtol=1e-13)
    change(box)
    assert abs(expected() - before) > 1e-3
    np.testing.assert_allclose(computed(), expected(), rtol=1e-13)


def test_a_file_named_like_one_of_a_library_is_the_users(tmp_path, monkeypatch):
    """`import code` takes a file of the user's if it is there."""
    (tmp_path / "code.py").write_text("K = 1.0\n\ndef H(q, p):\n    return K * q[0] + p[0]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "code", raising=False)
    _is_library.cache_clear()
    import code

    try:
        assert_seen(code.H, later(code, "K", 4.0), monkeypatch)
    finally:
        sys.modules.pop("code", None)
        _is_library.cache_clear()


def test_too_much_to_look_at_is_traced_again():
    numbers = [float(i) for i in range(BUDGET)]

    def fun(q, p):
        return numbers[-1] * q[0]

    assert captured(fun, lambda: "trace") == captured(fun, lambda: "trace")
    assert captured(fun, lambda: "trace") != captured(fun, lambda: "another")


def test_runs_follow_whatever_a_function_reads(tmp_path):
    """Such as what is in a file."""
    file = tmp_path / "stiffness"

    def H(q, p):
        return p[0] ** 2 / 2 + float(file.read_text()) * q[0] ** 2 / 2

    def start(key):
        return float(file.read_text()) * jax.random.uniform(key, (1,)), jnp.zeros(1)

    def results(stiffness, start):
        file.write_text(str(stiffness))
        options = {"dt": 0.1, "t_end": 0.1, "keep": "final"}
        run = da.simulate(system, da.stormer_verlet(), start, **options)
        return run.p[0, 0], run.mean["energy"][0]

    file.write_text("1.0")
    system = da.System(H=H, dim=1)
    soft, stiff = (np.array(results(k, ([2.0], [0.0]))) for k in (1.0, 4.0))
    np.testing.assert_allclose(stiff, 4 * soft, rtol=0.1)
    small, large = (results(k, start)[1] for k in (1.0, 2.0))
    np.testing.assert_allclose(large, 8 * small, rtol=1e-12)


@pytest.mark.parametrize("call", ["step", "simulate", "observe", "sampler", "moments"])
def test_a_traced_number_that_a_function_reads_is_refused(call):
    def inside(k):
        def H(q, p):
            return p[0] ** 2 / 2 + k * q[0] ** 2 / 2

        own = da.System(H=H, dim=1)
        other = da.systems.pendulum()
        start, options = ([2.0], [0.0]), {"dt": 0.1, "t_end": 0.1}
        match call:
            case "step":
                return da.step(own, da.midpoint(), *start, 0.1, [])
            case "simulate":
                return da.simulate(own, da.midpoint(), start, **options).mean["energy"]
            case "observe":
                observe = {"q": lambda q, p, params: k * q[0]}
                return da.simulate(other, da.midpoint(), start, observe=observe, **options)
            case "sampler":
                draw = lambda key: (k * jax.random.normal(key, (1,)), jnp.zeros(1))  # noqa: E731
                return da.simulate(other, da.midpoint(), draw, **options)
            case "moments":
                return da.exact_moments(own, da.midpoint(), start, dt=0.1, steps=2).mean

    with pytest.raises(TypeError, match=r"belongs to a surrounding jit.*da.System\(.*params=…\)"):
        jax.jit(inside)(1.0)


@pytest.mark.parametrize("case", CHANGES)
def test_a_change_is_seen(case, monkeypatch):
    fun, change = CHANGES[case]
    before = captured(fun)
    assert_seen(fun, change, monkeypatch)
    assert captured(fun) == before


def test_an_array_that_is_changed_in_place_is_seen():
    table = np.array([1.0, 2.0])

    def fun(q, p):
        return table[0] * q[0]

    before = captured(fun)
    table[0] = 4.0
    assert captured(fun) != before


def test_bound_methods_and_partials_are_made_anew_and_equal():
    well = Well(1.0)
    before = captured(well.energy)
    assert before == captured(well.energy)
    well.stiffness = 4.0
    assert captured(well.energy) != before
    assert captured(partial(by_global, p=1)) == captured(partial(by_global, p=1))
    assert captured(partial(by_global, p=1)) != captured(partial(by_global, p=2))


def test_different_functions_and_types_differ():
    assert captured(by_global) != captured(by_function)
    assert captured(lambda q, p: q) != captured(lambda q, p: q)
    assert captured(partial(by_global, p=1)) != captured(partial(by_global, p=1.0))


def test_what_calls_itself_has_an_end():
    def again(q, p):
        return again(q, p)

    assert captured(again) == captured(again)


def before_and_after(results, monkeypatch):
    """What comes out with a soft spring, with a stiff one, and with the stiff one written out."""
    system = da.System(H=by_global, h=[lambda q, p: -0.3 * q[0]], dim=1)
    soft = results(system)
    monkeypatch.setattr(f"{__name__}.STIFFNESS", 4.0)
    stiff = results(system)

    def written_out(q, p):
        return p[0] ** 2 / 2 + 4.0 * q[0] ** 2 / 2

    return soft, stiff, results(da.System(H=written_out, h=[lambda q, p: -0.3 * q[0]], dim=1))


def test_runs_and_steps_follow_a_global(monkeypatch):
    options = {"dt": 0.1, "t_end": 1.0, "paths": 8, "keep": "final", "save_every": 10}

    def results(system):
        run = da.simulate(system, da.heun(), ([2.0], [0.0]), observe={"H": by_global}, **options)
        step = da.step(system, da.heun(), [2.0], [0.0], 0.1, [0.1])
        return run.q[0, 0], run.mean["H"][-1], step[1][0]

    soft, stiff, expected = before_and_after(results, monkeypatch)
    np.testing.assert_allclose(stiff, expected, rtol=1e-12)
    assert np.all(np.abs(np.subtract(stiff, soft)) > 1e-3)


@pytest.mark.slow
def test_theory_follows_a_global_too(monkeypatch):
    def results(system):
        moments = da.exact_moments(system, da.midpoint(), ([2.0], [0.0]), dt=0.1, steps=10)
        H_d = da.discrete_hamiltonian(system, da.midpoint(), [2.0], [0.0], 0.1, [0.1]).H_d
        series = expectation_series(system, {"H": by_global}, ([2.0], [1.0]), terms=3)["H"]
        return moments.energy, H_d, series.powers[0]

    soft, stiff, expected = before_and_after(results, monkeypatch)
    np.testing.assert_allclose(stiff, expected, rtol=1e-12)
    assert np.all(np.abs(np.subtract(stiff, soft)) > 1e-3)


def test_samplers_follow_too(monkeypatch):
    def start(key):
        return STIFFNESS * jax.random.normal(key, (1,)), jnp.zeros(1)

    def spread():
        run = da.simulate(
            da.systems.langevin(), da.baoab(), start, dt=0.1, t_end=0.1, paths=4,
            observe={"q": lambda q, p, c: q[0] ** 2},
        )  # fmt: skip
        return run.mean["q"][0]

    before = spread()
    monkeypatch.setattr(f"{__name__}.STIFFNESS", 3.0)
    np.testing.assert_allclose(spread(), 9 * before, rtol=1e-12)


def test_many_functions_that_call_each_other_are_looked_at_once():
    def make(others):
        def fun(q, p):
            return sum(other(q, p) for other in others)

        return fun

    functions: list = []
    for _ in range(60):
        functions.append(make(functions))
    assert len(captured(functions[0])) < 60 * 70
    assert captured(functions[0]) == captured(functions[0])


def by_environment(q, p):
    return p[0] ** 2 / 2 + float(os.environ["STIFFNESS_OF_A_TEST"]) * q[0] ** 2


def by_file(path):
    def H(q, p):
        with open(path) as file:
            return p[0] ** 2 / 2 + float(file.read()) * q[0] ** 2

    return H


def by_name_inside(q, p):
    from os import getenv as read

    return p[0] ** 2 / 2 + float(read("STIFFNESS_OF_A_TEST") or 0) * q[0] ** 2


def by_clock(q, p):
    return clock() * q[0]


def by_datetime(q, p):
    return datetime.datetime.now().second * q[0]


def by_random_state(q, p):
    return np.random.rand() * q[0]  # noqa: NPY002


@pytest.mark.parametrize(
    "fun", [by_environment, by_file("x"), by_name_inside, by_clock, by_datetime, by_random_state]
)
def test_what_reads_from_outside_is_traced_again(fun):
    assert captured(fun) != captured(fun)

    def around(q, p):
        return fun(q, p)

    assert captured(around) != captured(around)
    # What does neither is known: a control.
    assert captured(by_function) == captured(by_function)
    assert captured(by_key) == captured(by_key)


def by_key(q, p):
    """Random numbers of JAX are those of their key."""
    return jax.random.normal(jax.random.key(0)) * q[0]


def test_steps_follow_the_environment_and_files(monkeypatch, tmp_path):
    file = tmp_path / "stiffness"
    for fun in (by_environment, by_file(file)):
        ends, system = [], None
        for value in ("1", "2"):
            monkeypatch.setenv("STIFFNESS_OF_A_TEST", value)
            file.write_text(value)
            system = system or da.System(fun, dim=1)
            ends.append(float(da.step(system, da.stormer_verlet(), [1.0], [0.0], 0.1, [])[1][0]))
        assert ends[1] == pytest.approx(2 * ends[0], rel=0.01)
