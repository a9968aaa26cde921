"""Certificates: structure, convergence and orders of every method, with negative controls."""

import dataclasses

import numpy as np
import pytest

from dalembert.methods import (
    METHODS,
    MeanSquareTableau,
    WeakTableau,
    dirk,
    e1,
    heun,
    midpoint,
    rs1,
    rs2,
    srkw1,
    srkw2,
    stormer_verlet,
)
from dalembert.theory.certificate import Certificate, certify
from dalembert.theory.tree_words import term_in_words
from variational_cases import general_dirk

STRUCTURED = [
    midpoint(),
    stormer_verlet(),
    dirk(),
    dirk(0.3),
    dirk(-1.7),
    srkw1(),
    srkw1(0),
    srkw2(),
]
EXPLICIT = [METHODS[name]() for name in ("heun", "r2", "e1", "rs1", "rs2")]
KINDS = ("one", "additive", "commuting", "general")


def orders(*values):
    return dict(zip(KINDS, values, strict=True))


# Structure


@pytest.mark.parametrize("method", STRUCTURED, ids=lambda m: m.name)
def test_structured_methods_meet_every_condition_that_applies(method):
    certificate = certify(method)
    assert certificate.lagrange_dalembert is True
    for label, residual in certificate.residuals.items():
        if label not in certificate.not_counted:
            assert residual <= 1e-15, label


def test_a_dirk_outside_the_family_of_the_paper_passes_all_conditions():
    certificate = certify(general_dirk())
    assert certificate.lagrange_dalembert
    assert max(certificate.residuals.values()) <= 1e-15
    assert max(certificate.convergence_residuals.values()) <= 1e-15
    assert certificate.order == orders(1.0, 1.0, 1.0, 0.5)


@pytest.mark.parametrize("method", EXPLICIT, ids=lambda m: m.name)
def test_explicit_methods_fail_every_condition(method):
    certificate = certify(method)
    assert certificate.lagrange_dalembert is False
    assert min(certificate.residuals.values()) > 0.1
    assert any("no explicit method" in note for note in certificate.notes)


@pytest.mark.parametrize(
    ("key", "spoiled"),
    [
        ("a", "1456"),
        ("a_bar", "13"),
        ("a_hat", "57"),
        ("b", "2378"),
        ("b_bar", "24"),
        ("b_hat", "68"),
    ],
)
def test_a_spoiled_midpoint_fails_exactly_where_it_was_spoiled(key, spoiled):
    certificate = certify(dataclasses.replace(midpoint(), **{key: [[0.5 + 1e-9]]}))
    assert not certificate.lagrange_dalembert
    failing = [label[0] for label, value in certificate.residuals.items() if value > 1e-14]
    assert failing == list(spoiled)
    assert max(certificate.residuals.values()) == pytest.approx(1e-9, rel=1e-6)


@pytest.mark.parametrize(
    ("key", "spoiled"), [("a0", "1"), ("a1", "2"), ("b0", "2"), ("b1", "3"), ("b3", "4")]
)
def test_a_spoiled_srkw1_fails_exactly_where_it_was_spoiled(key, spoiled):
    certificate = certify(dataclasses.replace(srkw1(), **{key: [[0.75]]}))
    failing = [label[0] for label, value in certificate.residuals.items() if value > 1e-14]
    assert failing == list(spoiled)


def test_off_diagonal_and_transposed_entries_count():
    swapped = dataclasses.replace(stormer_verlet(), a_bar=stormer_verlet().a_bar.T)
    failing = [k[0] for k, value in certify(swapped).residuals.items() if value > 1e-14]
    assert failing == ["1", "3"]


def structured(rng, size, stages=3):
    """A tableau that meets all eight conditions to rounding, with coefficients of this size."""

    def weights():
        w = rng.normal(scale=size, size=stages)
        return np.append(w[:-1], 1 - w[:-1].sum())

    alpha, alpha_hat = weights(), weights()
    a = rng.normal(scale=size, size=(stages, stages))
    a_bar, a_hat = (v - v * a.T / alpha[:, None] for v in (alpha, alpha_hat))
    return MeanSquareTableau(a, a_bar, a_hat, a, a_bar, a_hat, *[alpha, alpha_hat] * 2)


@pytest.mark.parametrize("size", [1, 10, 300])
def test_rounding_of_large_coefficients_is_no_fault(size):
    rng = np.random.default_rng(0)
    for _ in range(20):
        method = structured(rng, size)
        assert certify(method).lagrange_dalembert
        spoiled = method.a_hat * (1 + 1e-12 * np.eye(3))
        assert not certify(dataclasses.replace(method, a_hat=spoiled)).lagrange_dalembert


def test_orders_of_a_tableau_with_large_coefficients():
    """Midpoint in three equal stages with weights of size 10⁴ is midpoint."""
    weights = np.array([1e4 + 1 / 3, -2e4 + 0.1, 1e4 + 1 - 1 / 3 - 0.1])
    matrices, vectors = [np.tile(weights / 2, (3, 1))] * 6, [weights] * 4
    certificate = certify(MeanSquareTableau(*matrices, *vectors))
    assert certificate.order == certify(midpoint()).order
    assert certificate.weak_order == certify(midpoint()).weak_order
    spoiled = [m + 1e-6 for m in matrices]
    assert certify(MeanSquareTableau(*spoiled, *vectors)).order["one"] is None


def test_labels_spell_out_the_conditions():
    assert list(certify(midpoint()).residuals) == [
        "1: α_i ā_ij + α_j a_ji = α_i α_j",
        "2: β_i b̄_ij + β_j b_ji = β_i β_j",
        "3: β_i ā_ij + α_j b_ji = β_i α_j",
        "4: α_i b̄_ij + β_j a_ji = α_i β_j",
        "5: α_i â_ij + α̂_j a_ji = α_i α̂_j",
        "6: α_i b̂_ij + β̂_j a_ji = α_i β̂_j",
        "7: β_i â_ij + α̂_j b_ji = β_i α̂_j",
        "8: β_i b̂_ij + β̂_j b_ji = β_i β̂_j",
    ]
    assert [label[0] for label in certify(srkw1()).residuals] == list("1234")
    assert [label[0] for label in certify(e1()).residuals] == list("123456")


def test_condition_4_does_not_apply_to_one_noise():
    certificate = certify(srkw2())
    (label,) = certificate.not_counted
    assert label.startswith("4:")
    assert certificate.residuals[label] == 0.25
    assert any("one noise only" in note for note in certificate.notes)
    for_any = certify(dataclasses.replace(srkw2(), max_noises=None))
    assert not for_any.not_counted
    assert not for_any.lagrange_dalembert


def test_heun_is_put_to_the_eight_conditions_of_its_embedding():
    h = heun()
    embedded = MeanSquareTableau(
        *[h.A] * 3, *[h.B1] * 3, h.alpha, h.alpha, h.g1, h.g1, name="heun, embedded"
    )
    assert certify(h).residuals == certify(embedded).residuals
    assert certify(h).convergence_residuals == certify(embedded).convergence_residuals
    assert certify(h).weak_order == certify(embedded).weak_order


# Convergence


@pytest.mark.parametrize("name", ["midpoint", "stormer_verlet", "dirk", "heun", "r2", "e1"])
def test_mean_square_methods_converge(name):
    certificate = certify(METHODS[name]())
    assert certificate.convergence == "mean-square"
    assert len(certificate.convergence_residuals) == (6 if name == "e1" else 10)
    assert max(certificate.convergence_residuals.values()) <= 1e-15
    assert certificate.order == orders(1.0, 1.0, 1.0, 0.5)


def test_half_sums_that_fail_leave_additive_noise_only():
    certificate = certify(dataclasses.replace(midpoint(), b=[[0.75]]))
    failing = [k for k, value in certificate.convergence_residuals.items() if value > 1e-12]
    assert failing == ["βᵀ b e = 1/2", "β̂ᵀ b e = 1/2"]
    assert certificate.order == orders(None, 1.0, None, None)
    assert certificate.weak_order["one"] is None
    assert certificate.weak_order["additive"] == 1.0
    assert "does not converge to the Stratonovich solution" in certificate.notes[0]
    assert "βᵀ b e = 1/2; β̂ᵀ b e = 1/2 fail" in certificate.notes[0]


def test_sums_with_dZ_that_fail():
    certificate = certify(dataclasses.replace(e1(), g2=np.zeros(4)))
    failing = [k for k, value in certificate.convergence_residuals.items() if value > 1e-12]
    assert failing == ["g1ᵀ B2 e + g2ᵀ B1 e = 0"]
    assert certificate.order["one"] is None


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (srkw1(), orders(1.0, 1.0, 1.0, 1.0)),
        (srkw1(0), orders(1.0, 1.0, 1.0, 1.0)),
        (srkw2(), orders(2.0, None, None, None)),
        (rs1(), orders(2.0, 2.0, 2.0, 2.0)),
        (rs2(), orders(2.0, 2.0, 2.0, 2.0)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_orders_of_weak_methods(method, expected):
    certificate = certify(method)
    assert certificate.convergence == "weak"
    assert certificate.order == certificate.weak_order == expected
    assert max(certificate.convergence_residuals.values()) <= 1e-15


def test_weak_orders_of_mean_square_methods():
    assert certify(midpoint()).weak_order == orders(1.0, 1.0, 1.0, 1.0)
    assert certify(heun()).weak_order == orders(1.0, 2.0, 1.0, 1.0)


def test_commuting_noise_between_one_and_general_is_said_to_be_open():
    certificate = certify(dataclasses.replace(srkw2(), max_noises=None))
    assert certificate.order == orders(2.0, 2.0, 1.0, 1.0)
    assert "commuting noises: at least 1" in certificate.notes[0]
    assert "at most 2" in certificate.notes[0]


def test_a_weak_tableau_that_does_not_converge():
    euler = WeakTableau([[0]], [[0]], [[0]], [[0]], [[0]], [1], [1], name="euler")
    certificate = certify(euler)
    assert certificate.order == orders(None, 1.0, None, None)
    assert certificate.convergence_residuals["E[1[1]] = 1/2"] == pytest.approx(0.5)


def test_the_obstacle_to_the_next_order_is_named():
    notes = certify(midpoint()).notes
    assert (
        "weak order 2 for additive noise is stopped by 2 conditions, "
        "such as E[0[1 1]], which is 1/4 and should be 1/2" in notes
    )
    assert notes[-1].startswith("E[0[1 1]] is the mean of one term of the step's series: the drift")
    assert certify(rs2()).notes == certify(heun()).notes[:1]


# Words


def test_str_of_a_structured_method():
    text = str(certify(midpoint()))
    assert text.startswith("Certificate of midpoint (mean-square partitioned Runge–Kutta, 1 stage)")
    assert "Lagrange–d'Alembert structure: kept" in text
    assert "1: α_i ā_ij + α_j a_ji = α_i α_j" in text
    assert "FAILS" not in text
    assert "mean-square  1    1         1          1/2" in text


def test_str_of_methods_that_fail_or_are_limited():
    text = str(certify(heun()))
    assert "NOT kept" in text
    assert text.count("FAILS") == 8
    limited = str(certify(srkw2()))
    assert "2.5e-01  does not apply" in limited
    assert "weak  2    -         -          -" in limited


def test_columns_line_up_in_spite_of_combining_characters():
    from dalembert.methods.coefficients import text_width

    lines = [line for line in str(certify(midpoint())).splitlines() if line.endswith("ok")]
    structure, sums = lines[:8], lines[8:]
    assert len({text_width(line) for line in structure}) == 1
    assert len({text_width(line) for line in sums}) == 1


def test_html_is_escaped_and_complete():
    html = certify(dataclasses.replace(midpoint(), name="<mine>"))._repr_html_()
    assert "&lt;mine&gt;" in html
    assert "<mine>" not in html
    assert html.count("<tr>") == 8 + 10 + 3


def test_certificates_are_frozen_records():
    certificate = certify(midpoint())
    assert isinstance(certificate, Certificate)
    assert certificate == certify(midpoint())
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificate.order = {}  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("method", [make() for make in METHODS.values()], ids=lambda m: m.name)
def test_the_legend_explains_what_is_shown_and_nothing_else(method):
    notes = certify(method).notes
    stopped = [note.partition("such as ")[2] for note in notes if "is stopped by" in note]
    terms = [text.partition(",")[0] for text in stopped if text]
    legend = [note for note in notes if " is the mean of " in note]
    assert len(legend) == bool(terms)
    if not terms:
        return
    assert legend[0].startswith(f"{terms[0]} is the mean of ")
    shown = " ".join(terms)
    assert ("· is a product" in legend[0]) == ("·" in shown)
    assert ("is the part of a field" in legend[0]) == ("(" in shown)


@pytest.mark.parametrize(
    ("term", "words"),
    [
        ("2 · 2", "a product of terms of the step's series: noise 2 × noise 2"),
        ("0", "one term of the step's series: the drift"),
        ("1[2[1]] · 2", "(noise 1, moved by (noise 2, moved by noise 1)) × noise 2"),
        ("1(h_p)[1(h_p) 1(h_p)]", "h_p of noise 1, moved by h_p of noise 1 twice"),
    ],
)
def test_terms_in_words(term, words):
    assert term_in_words(term).startswith(f"E[{term}] is the mean of ")
    assert words in term_in_words(term)


def test_methods_by_name():
    assert certify("midpoint") == certify(midpoint())
    with pytest.raises(ValueError, match="midpoint"):
        certify("midpont")


def test_only_methods_can_be_certified():
    with pytest.raises(TypeError, match=r"certify needs a method, got .*; write .*midpoint\(\)"):
        certify(midpoint)  # pyright: ignore[reportArgumentType]
