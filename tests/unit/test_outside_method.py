"""A family of methods from outside the package works wherever the package's own do."""

import inspect
from dataclasses import dataclass, replace
from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest

import dalembert as da
import outside_method
from dalembert.methods.checked_rows import checked_rows
from dalembert.methods.stages import DT, DW, StageSystem, along, along_noises, assemble
from outside_method import Platen, Square

SYSTEM = da.System(
    H=lambda q, p: p[0] ** 2 / 2 - jnp.cos(q[0]),
    F=lambda q, p: -0.1 * p,
    h=[lambda q, p: 0.4 * jnp.sin(q[0]) + 0.2 * p[0] ** 2],
    dim=1,
    name="pendulum in noise",
)
START = ([0.7], [0.3])
OPTIONS = dict(dt=0.05, t_end=2.0, paths=70, save_every=10, keep="all", progress=False)


def run(method=None, **options):
    return da.simulate(SYSTEM, method or Platen(), START, **OPTIONS | options)


def by_hand(q, p, dt, dW, c):
    """The scheme as its docstring writes it."""

    def drift(q, p):
        return np.array([p, -np.sin(q) - 0.1 * p])

    def noise(q, p):
        return np.array([0.4 * p, -0.4 * np.cos(q)])

    y = np.array([q, p])
    above, below = (noise(*(y + s * c * np.sqrt(dt) * noise(*y))) for s in (1, -1))
    change = dt * drift(*y) + dW * noise(*y)
    return y + change + dW**2 / (4 * c * np.sqrt(dt)) * (above - below)


def test_it_takes_at_most_sixty_lines():
    assert len(inspect.getsource(outside_method).splitlines()) <= 60


def test_a_step_is_what_its_equations_say():
    q, p, info = da.step(SYSTEM, Platen(c=0.7), *START, 0.1, [0.25])
    np.testing.assert_allclose([q[0], p[0]], by_hand(0.7, 0.3, 0.1, 0.25, c=0.7), rtol=1e-14)
    assert info.converged and info.iterations == 0
    assert abs(by_hand(0.7, 0.3, 0.1, 0.25, c=0.1) - [q[0], p[0]]).max() > 1e-8, "c matters"


def test_runs_on_two_engines_take_these_steps():
    usual, plain = run(), run(engine="XLA")
    assert usual.provenance["code"] != plain.provenance["code"]
    np.testing.assert_allclose(usual.q, plain.q, rtol=0, atol=1e-12)
    y = (0.7, 0.3)
    for dW in da.brownian_path(seed=0, path=3, dt=0.05, steps=40, noises=1).dW[:, 0]:
        y = by_hand(*y, 0.05, dW, c=1.0)
    np.testing.assert_allclose([usual.q[-1, 3, 0], usual.p[-1, 3, 0]], y, rtol=0, atol=1e-12)


def test_its_certificate_and_what_a_diagnosis_expects():
    certificate = da.certify(Platen())
    assert certificate.order == {"one": 1.0, "additive": None, "commuting": None, "general": None}
    assert certificate.weak_order["one"] == 1, "from the series of its rows"
    assert not certificate.keeps_structure and not certificate.lagrange_dalembert
    text = str(certificate)
    assert "Platen's explicit schemes, 3 stages" in text and "Structure: none declared" in text
    (verdict,) = da.diagnose(SYSTEM, methods=[Platen()]).methods
    assert (verdict.strong, verdict.weak, verdict.cost) == (1, 1, "explicit")


@dataclass(frozen=True)
class Gauss(da.Method):
    """One stage in the middle, for all noises: the midpoint method with nothing said about it."""

    name: str = "silent"
    family = "silent methods"
    convergence = "mean-square"
    stages = 1

    def rows(self, noises):
        half, whole = ([x for x in self.fields(noises, w)] for w in (0.5, 1.0))
        return assemble([half, whole])

    def fields(self, noises, weight):
        return along(None, DT, [weight]) + along_noises(noises, DW, [weight])


class Euler(Gauss):
    """One stage at the old state: a wrong limit in general."""

    def rows(self, noises):
        return assemble([[], self.fields(noises, 1.0)])


def test_what_is_not_declared_is_not_known_and_not_denied():
    certificate = da.certify(Gauss())
    text = str(certificate)
    assert "Structure: not declared (write `promises`)" in text and "NOT kept" not in text
    assert "mean-square  ?    ?         ?          ?" in text and "? is not known" in text
    assert "weak         1    1         1          1" in text
    assert not certificate.keeps_structure and certificate.keeps == "-"
    wrong = str(da.certify(Euler()))
    assert "mean-square  -    ?         -          -" in wrong, "no order where the limit is wrong"
    assert "weak         -    1         -          -" in wrong


def promising(method, **promises):
    class Promising(type(method)):
        def promises(self):
            return da.Promises(**promises)

    return Promising()


@pytest.mark.parametrize(
    ("method", "promised", "believed"),
    [
        (Euler(), {"one": 1.5}, None),
        (Euler(), {"one": 0.5}, None),
        (Euler(), {"additive": 1.0}, 1.0),
        (Gauss(), {"one": 2.0}, None),
        (Gauss(), {"one": 1.0}, 1.0),
        (Gauss(), {"commuting": 1.5}, None),
        (Gauss(), {"general": 0.5}, 0.5),
    ],
)
@pytest.mark.parametrize("which", ["order", "weak_order"])
def test_promises_that_the_rows_contradict_are_not_believed(method, promised, believed, which):
    certificate = da.certify(promising(method, **{which: promised}))
    ((kind, order),) = promised.items()
    found = certificate.order if which == "order" else certificate.weak_order
    assert found[kind] == believed
    sense = "mean-square" if which == "order" else "weak"
    said = f"the promised {sense} order {'3/2' if order == 1.5 else ''}"
    assert any(note.startswith(said) for note in certificate.notes) == (believed is None)


def test_a_structure_without_conditions_is_declared_and_not_checked():
    name = "Lagrange–d'Alembert structure"
    certificate = da.certify(promising(Euler(), structure=name))
    assert f"{name}: declared, not checked" in str(certificate)
    assert not certificate.keeps_structure and not certificate.lagrange_dalembert
    kept = da.certify(promising(Gauss(), structure=name, residuals={"α a + α a = α α": 0.0}))
    assert kept.lagrange_dalembert and f"{name}: kept" in str(kept)
    missed = da.certify(promising(Gauss(), structure=name, residuals={"α a + α a = α α": 0.1}))
    assert f"{name}: NOT kept" in str(missed)
    always = da.certify(promising(Gauss(), structure=name, residuals={}))
    assert always.lagrange_dalembert


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"order": {"one noise": 1.0}}, r"'one noise'; there are 'one', 'additive', 'commuting'"),
        (
            {"weak_order": {"any": 1.0}},
            r"weak_order has the kind of noise 'any'.*Write weak_order=",
        ),
        ({"order": {"one": -1.0}}, r"order\['one'\] must be a positive number .* not -1.0"),
        ({"order": {"one": "1"}}, r"must be a positive number such as 1.0, or None"),
        ({"order": {"one": True}}, r"not True"),
        ({"without_noise": 0.0}, r"without_noise must be a positive number"),
        ({"residuals": {"sum": None}}, r"residuals\['sum'\] must be a number ≥ 0"),
        ({"sums": {"sum": float("nan")}}, r"sums\['sum'\] must be a number ≥ 0"),
    ],
)
def test_promises_of_no_meaning_are_refused(wrong, match):
    with pytest.raises(ValueError, match=match):
        da.Promises(**wrong)


@pytest.mark.parametrize(
    ("rows", "stages", "match"),
    [
        (lambda n: [along(None, DT, [1, 2, 3])], 1, r"taken at stage 2, .* there are 0 stages"),
        (lambda n: [[], along(None, DT, [1, 2, 3])], 1, "taken at stage 2.*a weight for each"),
        (lambda n: [along(None, DT, [1])], 1, r"taken at stage 0, which is the new state itself"),
        (lambda n: [[]], 3, r"stages = 3, and there are 0 before the new state"),
        (lambda n: [[], [], []], 4, r"stages = 4, and there are 2 before the new state"),
        (lambda n: [[], along(0, DW(0), [1])], 1.5, r"a whole number ≥ 1, not 1.5"),
        (lambda n: [[], along(0, DW(0), [1])], 1, r"noise 1 has no field"),
        (
            lambda n: [[], along(n, DW(0), [1])],
            1,
            r"noise 0, 1 has no field, and there is no noise 2",
        ),
    ],
)
def test_rows_that_cannot_be_are_refused(rows, stages, match):
    count = stages

    class Wrong(Gauss):
        stages = count

        def rows(self, noises):
            return assemble(rows(noises))

    system = da.systems.two_noise()
    with pytest.raises(ValueError, match=r"rows\(2\) of silent: .*" + match):
        da.simulate(system, Wrong(), START, **OPTIONS)
    with pytest.raises(ValueError, match=r"rows\([12]\) of silent: "):
        da.certify(Wrong())


def test_rows_of_all_splittings_are_taken():
    """Their rows of positions and momenta are apart, and may be as many of either."""
    words = map("".join, product("ABO", repeat=4))
    taken = [word for word in words if {*"ABO"} <= {*word}]
    for word in taken:
        method = da.LangevinSplitting(word=word)
        assert all(checked_rows(method, noises).entries for noises in (0, 1, 2))
    assert len(taken) == 36
    for part, _ in da.g_baoab().parts:
        assert checked_rows(part, 1).entries


def test_rows_of_another_type_are_refused():
    class Bare(Gauss):
        def rows(self, noises):
            return [self.fields(noises, 1.0)]

    with pytest.raises(TypeError, match=r"rows\(1\) of silent must return a StageSystem, such as"):
        da.step(SYSTEM, Bare(), *START, 0.1, [0.1])


@pytest.mark.parametrize(("increment", "name"), [(DW, "DW"), (1.0, "1.0")])
def test_a_kind_of_increment_is_no_increment(increment, name):
    with pytest.raises(TypeError, match=f"DT, which is one, or DW.r., .* not by {name}"):
        assemble([along(0, increment, [1])])


@pytest.mark.parametrize("convergence", ["strong", "weakly"])
def test_certificates_refuse_unknown_kinds_of_convergence(convergence):
    kind = convergence

    class Other(Gauss):
        convergence = kind

    with pytest.raises(ValueError, match=rf"convergence of silent: \['{convergence}'\], not among"):
        da.certify(Other())


def test_promises_of_another_type_are_refused():
    with pytest.raises(TypeError, match=r"orders by kind of noise, order=\{.one.: 1.0"):
        da.Promises(order=1.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="numbers by formula"):
        da.Promises(residuals=[0.0])  # pyright: ignore[reportArgumentType]


def with_value(formula):
    """The same family with another increment in the place of ΔW²/√h."""

    @dataclass(frozen=True)
    class Other(Square):
        name = "another"

        def value(self, dt, noise):
            return formula(dt, noise.dW[self.noise])

    def changed(rows):
        return tuple(
            tuple(e._replace(increment=Other(0)) if e.increment == Square(0) else e for e in row)
            for row in rows
        )

    @dataclass(frozen=True)
    class Varied(Platen):
        def rows(self, noises):
            usual = super().rows(noises)
            return StageSystem(changed(usual.q_rows), changed(usual.p_rows))

    return Varied()


@pytest.mark.parametrize(
    ("formula", "order"),
    [
        (lambda dt, dW: dW**2 / dt**0.5, 1),
        (lambda dt, dW: dW**4 / dt**1.5, None),  # its mean is three times too large
        (lambda dt, dW: dW**6 / (15 * dt**2.5), 1),  # whose mean three nodes do not give
        (lambda dt, dW: jnp.exp(dW), None),  # no power: no series, and nothing is promised
    ],
    ids=["square", "fourth power", "sixth power", "exponential"],
)
def test_weak_orders_count_all_powers_of_the_noise(formula, order):
    assert da.certify(with_value(formula)).weak_order["one"] == order


def test_explain_shows_its_rows():
    text = da.explain(SYSTEM, Platen())
    assert "platen on pendulum in noise" in text and "equations to solve: none, explicit" in text


def test_what_it_cannot_take_is_refused():
    with pytest.raises(ValueError, match=r"platen takes one noise, the system has 2: use da\.heun"):
        da.simulate(da.systems.two_noise(), Platen(), START, **OPTIONS)
    with pytest.raises(ValueError, match="no discrete Hamiltonian is known here for platen"):
        da.discrete_hamiltonian(SYSTEM, Platen(), *START, 0.1, [0.1])


class Plain(Platen):
    """Its equality would not see its own fields."""

    __hash__ = None


@dataclass(frozen=True)
class Strong(Platen):
    convergence = "strong"


@dataclass(frozen=True)
class Wanting(Platen):
    requires = frozenset({"little noise"})


@pytest.mark.parametrize(
    ("method", "error", "match"),
    [
        (Plain(), TypeError, r"Plain must be a dataclass\(frozen=True\)"),
        (Strong(), ValueError, r"convergence of platen: \['strong'\], not among \['mean-square'"),
        (Wanting(), ValueError, r"requires of platen: \['little noise'\], not among"),
    ],
    ids=lambda case: type(case).__name__,
)
def test_a_family_that_does_not_keep_to_the_rules_is_refused(method, error, match):
    with pytest.raises(error, match=match):
        da.step(SYSTEM, method, *START, 0.1, [0.1])


def test_an_increment_cannot_read_what_it_does_not_declare():
    class Undeclared(Square):
        reads = frozenset()

    @dataclass(frozen=True)
    class Careless(Platen):
        stages = 1

        def rows(self, noises):
            return assemble([[], along(0, Undeclared(0), [1])])

    with pytest.raises(TypeError, match=r"Undeclared.* cannot be computed from dt and \[\]"):
        da.step(SYSTEM, Careless(), *START, 0.1, [0.1])


def test_files_and_checkpoints(tmp_path):
    first = run(checkpoint=tmp_path / "run.ckpt")
    assert run(checkpoint=tmp_path / "run.ckpt").q.tobytes() == first.q.tobytes()
    for other in (Platen(c=2.0), replace(Platen(), name="mine")):
        with pytest.raises(ValueError, match="method"):
            run(other, checkpoint=tmp_path / "run.ckpt")
    first.save(tmp_path / "run.npz")
    again = da.load(tmp_path / "run.npz")
    assert again.provenance["method"]["family"] == "Platen's explicit schemes"
    assert again.q.tobytes() == first.q.tobytes() and "platen" in repr(again)


def test_a_checkpoint_knows_what_the_steps_compute(tmp_path, monkeypatch):
    run(checkpoint=tmp_path / "run.ckpt")
    monkeypatch.setattr(Square, "value", lambda self, dt, noise: noise.dW[self.noise])
    with pytest.raises(ValueError, match="method"):
        run(checkpoint=tmp_path / "run.ckpt")
    monkeypatch.undo()
    rows = Platen.rows
    monkeypatch.setattr(Platen, "rows", lambda self, noises: rows(replace(self, c=0.5), noises))
    with pytest.raises(ValueError, match="method"):
        run(checkpoint=tmp_path / "run.ckpt")


@pytest.mark.slow
def test_its_order_is_measured():
    found = da.strong_order(SYSTEM, Platen(), START, t_end=0.5, steps=(8, 16, 32), paths=100)
    low, high = found.interval
    assert low < 1.1 and high > 0.9, found


def test_one_that_is_registered_stands_in_the_tables_of_diagnoses(monkeypatch):
    monkeypatch.setitem(da.METHODS, "platen", Platen)
    found = da.diagnose(SYSTEM)
    assert "platen" in [v.name for v in found.methods] and "platen" in str(found)
    assert "platen" not in [advice.method for advice in found.recommendation]
    assert da.methods.METHODS["platen"]().is_compared


@dataclass(frozen=True)
class Special(Platen):
    """One that is shown only where it has something to offer."""

    name: str = "special"
    is_special = True

    def offers(self, found):
        reasons = ("mean-square order {strong}", "{kept}", "{solves}")
        return da.Offer("quick looks", reasons) if found.noise_kind == "one" else None


def test_one_that_has_an_offer_is_recommended_where_it_has(monkeypatch):
    monkeypatch.setitem(da.METHODS, "special", Special)
    found = da.diagnose(SYSTEM)
    (advice,) = (a for a in found.recommendation if a.purpose == "quick looks")
    assert advice.method == "special" and advice.reasons[0] == "mean-square order 1"
    assert [v.name for v in found.methods].count("special") == 1
    other = da.diagnose(da.systems.fput(2))
    assert "special" not in [v.name for v in other.methods]
