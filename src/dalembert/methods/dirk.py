"""The two-stage diagonally implicit family."""

from dalembert.methods.coefficients import Number, parameter
from dalembert.methods.tableau import MeanSquareTableau


def dirk(lam: Number = 0.5) -> MeanSquareTableau:
    """Two-stage diagonally implicit method: midpoint steps of length λh and (1−λ)h with one ΔW.

    Equations, with ΔW split in the same proportion as h:

        Y₁ = y + ½λ [h v(Y₁) + Σ_r ΔW_r b_r(Y₁)]
        Y₂ = y + λ [h v(Y₁) + Σ_r ΔW_r b_r(Y₁)] + ½(1−λ) [h v(Y₂) + Σ_r ΔW_r b_r(Y₂)]

    Stages: 2, one after the other; all six matrices are [λ/2 0; λ (1−λ)/2].
    Update: y' = y + λ [h v(Y₁) + …] + (1−λ) [h v(Y₂) + …].

    Keeps: the Lagrange–d'Alembert structure, hence a symplectic map when the forces vanish,
    momentum maps and every quadratic invariant. λ = 0 and λ = 1 are the midpoint method.
    Order: mean-square 1 for one, additive or commuting noises, ½ for others; weak 1, with h²
    accuracy when the noise vanishes.
    Cost: two systems of 2N nonlinear equations a step, N each when the Hamiltonians are
    separable. ΔW may need to be truncated, as for the midpoint method.

    When to use: as the midpoint method where its error constant is too large; without noise λ = ½
    has the smallest, a quarter of the midpoint's.

    Reference: KrausTyranowski2021, 2-stage stochastic DIRK method. (The family is not the most
    general one with these properties: the weights of H, F, h and f may differ.)
    """
    lam = parameter("lam", lam)
    matrix = [[lam / 2, 0.0], [lam, (1 - lam) / 2]]
    weights = [lam, 1 - lam]
    return MeanSquareTableau(
        a=matrix, a_bar=matrix, a_hat=matrix, b=matrix, b_bar=matrix, b_hat=matrix,
        alpha=weights, alpha_hat=weights, beta=weights, beta_hat=weights,
        name=f"dirk({lam!r})",
    )  # fmt: skip
