"""Functions of two vectors of length 3, in many spellings, for tests of what reads their jaxprs.

`FUNCTIONS` maps a name to a function of (x, y) that has a straight-line form on scalars;
`LOOPS` to one that has none, with the name of what is in the way. `DIFFERENTIABLE` names functions
whose derivative brings other operations than the function itself.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

MATRIX = np.array([[0.0, 1.0, 0.5], [2.0, 0.0, -1.0], [0.25, 0.0, 1.0], [1.0, 1.0, 1.0]])
PICK = np.array([2, 0, 2, 1])
TABLE = np.array([1.0, 4.0, 2.0])

X = np.array([0.3, -0.7, 1.2])
Y = np.array([0.5, 0.25, -1.1])


@jax.custom_vjp
def own_sine(x):
    return jnp.sin(x)


own_sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x),))


def pair_energy(x):
    """Interaction of all pairs, with broadcasting over two axes."""
    distance = x[:, None] - x[None, :]
    return jnp.sum(jnp.triu(1 / (1 + distance**2), 1))


def without_low_bits(x):
    """The numbers with half of their digits, as exact products need them."""
    bits = lax.bitcast_convert_type(x, jnp.uint64) & jnp.uint64(0xFFFFFFFFF8000000)
    return lax.bitcast_convert_type(bits, jnp.float64)


def polynomials(x, y):
    """Coefficients that are numbers, one for all entries of x, and one for each."""
    known = jnp.polyval(jnp.array([0.5, 0.0, -1.0, 2.0]), x)
    return known * jnp.polyval(y, x) + jnp.polyval(jnp.stack([y, x]), x)


FUNCTIONS = {
    # moving entries about
    "identity": lambda x, y: x,
    "slices": lambda x, y: x[1:] * y[:-1],
    "last entry": lambda x, y: x[-1] - y[0],
    "every other": lambda x, y: x[::2] + y[::2],
    "reversal": lambda x, y: x[::-1] + y,
    "roll": lambda x, y: jnp.roll(x, 1) - y,
    "concatenation": lambda x, y: jnp.concatenate([x, y[:1]]),
    "concatenation with nothing": lambda x, y: jnp.concatenate([x[:0], y]),
    "stack": lambda x, y: jnp.stack([x, y], axis=1),
    "pad": lambda x, y: jnp.pad(x, (1, 2), constant_values=3.0),
    "pad with a value": lambda x, y: lax.pad(x, y[0], ((-1, 2, 1),)),
    "pad with the edge": lambda x, y: jnp.pad(x, 2, mode="edge"),
    "reshape and transpose": lambda x, y: jnp.concatenate([x, y]).reshape(2, 3).T,
    "split": lambda x, y: jnp.split(x, 3)[1] * y[:1],
    "tile": lambda x, y: jnp.tile(x, 2),
    "repeat": lambda x, y: jnp.repeat(x, 2),
    "broadcast": lambda x, y: jnp.broadcast_to(x[:, None], (3, 2)),
    "meshgrid": lambda x, y: jnp.meshgrid(x, y)[0],
    "gather": lambda x, y: x[PICK],
    "gather from a matrix": lambda x, y: jnp.outer(x, y)[np.array([0, 2]), np.array([1, 1])],
    "take": lambda x, y: jnp.take(x, np.array([2, 0])),
    "mask": lambda x, y: x[np.array([True, False, True])],
    "dynamic slice at a known place": lambda x, y: lax.dynamic_slice(x, (1,), (2,)),
    "dynamic update at a known place": lambda x, y: lax.dynamic_update_slice(x, y[:1], (1,)),
    "scatter-add": lambda x, y: jnp.asarray(x).at[PICK].add(jnp.ones(4) * y[0]),
    "scatter-add of a gradient": jax.grad(lambda x, y: jnp.sum(x[PICK] ** 3 * y[0])),
    "scatter-add in two indices": jax.grad(
        lambda x, y: jnp.sum(jnp.outer(x, y)[np.array([0, 2, 0]), np.array([1, 1, 1])] ** 2)
    ),
    "segment sum": lambda x, y: jax.ops.segment_sum(x, np.array([0, 1, 0]), 2),
    "tree": lambda x, y: {"a": x, "b": (y[0] * x[1], jnp.zeros(2))},
    # products and sums
    "dot": lambda x, y: jnp.dot(x, y),
    "matrix times vector": lambda x, y: MATRIX @ x,
    "vector times matrices": lambda x, y: x @ MATRIX.T @ MATRIX,
    "outer": lambda x, y: jnp.outer(x, y) @ y,
    "einsum": lambda x, y: jnp.einsum("ij,j,k->ik", MATRIX, x, y),
    "batched dot": lambda x, y: jnp.einsum("bi,bi->b", jnp.stack([x, y]), jnp.stack([y, y])),
    "tensordot": lambda x, y: jnp.tensordot(jnp.outer(x, y), MATRIX, ((1,), (1,))),
    "diagonal matrix": lambda x, y: jnp.diag(x) @ y,
    "trace": lambda x, y: jnp.trace(jnp.outer(x, y)),
    "cross product": lambda x, y: jnp.cross(x, y),
    "inverse of a constant": lambda x, y: jnp.linalg.inv(MATRIX[:3] + 2 * jnp.eye(3)) @ x,
    "sum over an axis": lambda x, y: jnp.sum(jnp.outer(x, y), axis=0),
    "sum of nothing": lambda x, y: jnp.sum(x[:0]) + y,
    "mean": lambda x, y: jnp.mean(x),
    "variance": lambda x, y: jnp.var(x),
    "product": lambda x, y: jnp.prod(x),
    "maximum": lambda x, y: jnp.max(x),
    "minimum over an axis": lambda x, y: jnp.min(jnp.outer(x, y), axis=1),
    "any": lambda x, y: jnp.where(jnp.any(x > 1), x, y),
    "all": lambda x, y: jnp.where(jnp.all(x > 1), x, y),
    "cumsum": lambda x, y: jnp.cumsum(x * y),
    "cumsum backwards": lambda x, y: lax.cumsum(x * y, reverse=True),
    "cumsum over an axis": lambda x, y: jnp.cumsum(jnp.outer(x, y), axis=1),
    "difference": lambda x, y: jnp.diff(x) ** 2,
    "trapezoid": lambda x, y: jnp.trapezoid(x),
    "norm": lambda x, y: jnp.linalg.norm(x - y),
    "gradient of a norm": jax.grad(lambda x, y: jnp.linalg.norm(x - y)),
    "pairs": lambda x, y: pair_energy(x),
    # powers, roots, elementary functions
    "integer powers": lambda x, y: x**3 + y**-2,
    "float power": lambda x, y: (x**2) ** 1.5,
    "power two as a float": lambda x, y: x**2.0,
    "power zero": lambda x, y: x**0,
    "power of a power": lambda x, y: (x**2) ** y,
    "roots": lambda x, y: jnp.sqrt(1 + x * x) + jnp.cbrt(y) + lax.rsqrt(1 + y * y),
    "hypot": lambda x, y: jnp.hypot(x, y),
    "circular": lambda x, y: jnp.sin(x) * jnp.cos(y) + jnp.tan(x),
    "inverse circular": lambda x, y: jnp.arctan2(x, y) + jnp.arcsin(x / 9) + jnp.arctan(y),
    "hyperbolic": lambda x, y: jnp.sinh(x) + jnp.cosh(y) + jnp.tanh(x) + jnp.arcsinh(y),
    "exponentials": lambda x, y: jnp.exp(x) + jnp.expm1(y) + jnp.exp2(x),
    "logarithms": lambda x, y: jnp.log(jnp.abs(x)) + jnp.log1p(y * y),
    "base two": lambda x, y: jnp.log2(1 + x * x) * jnp.exp2(y),
    "error function": lambda x, y: jax.scipy.special.erf(x) + jax.scipy.special.erfc(y),
    "log gamma": lambda x, y: jax.scipy.special.gammaln(jnp.abs(x)),
    "bessel": lambda x, y: jax.scipy.special.i0e(x) + jax.scipy.special.i1e(y),
    "sinc": lambda x, y: jnp.sinc(x),
    "logaddexp": lambda x, y: jnp.logaddexp(x, y),
    "logsumexp": lambda x, y: jax.nn.logsumexp(x),
    "softmax": lambda x, y: jax.nn.softmax(x) @ y,
    "softplus": lambda x, y: jax.nn.softplus(x) * y,
    "softplus of constants": lambda x, y: jax.nn.softplus(jnp.ones(3)) * x,
    "relu of constants": lambda x, y: jax.nn.relu(jnp.arange(3.0) - 1) * x,
    "gelu": lambda x, y: jax.nn.gelu(x),
    "sigmoid": lambda x, y: jax.nn.sigmoid(x) * jax.nn.silu(y),
    "polynomial": lambda x, y: jnp.sum(jnp.stack([x**k for k in range(5)]) * y[0]),
    # choices and rounding
    "where": lambda x, y: jnp.where(x > 0, x * y, jnp.sin(y)),
    "where with known choices": lambda x, y: jnp.where(np.array([True, False, True]), x, y),
    "larger and smaller": lambda x, y: jnp.maximum(x, y) - jnp.minimum(x, 0.0),
    "clip": lambda x, y: jnp.clip(x, -0.5, 0.5),
    "absolute value": lambda x, y: jnp.abs(x) * jnp.sign(y),
    "remainder": lambda x, y: x % 1.0,
    "floor": lambda x, y: x - jnp.floor(x) + jnp.round(y),
    "finite or zero": lambda x, y: jnp.where(jnp.isfinite(x), x, 0.0),
    "float32 and back": lambda x, y: x.astype(jnp.float32).astype(jnp.float64),
    "integer and back": lambda x, y: x.astype(jnp.int32).astype(jnp.float64) * y,
    "boolean as a number": lambda x, y: (x > 0).astype(jnp.float64) * y,
    "half of the digits": lambda x, y: without_low_bits(x) * y,
    # functions within functions
    "jit": lambda x, y: jax.jit(lambda a: a * 2)(x),
    "jit of constants": lambda x, y: jax.jit(lambda a: a * 2)(jnp.ones(3)) * x,
    "remat": lambda x, y: jax.checkpoint(lambda a: jnp.sin(jnp.sin(a)))(x),
    "vmap": lambda x, y: jax.vmap(lambda a: jnp.sum(a * y))(jnp.stack([x, y])),
    "custom vjp": lambda x, y: own_sine(x) * y,
    "custom vjp of constants": lambda x, y: own_sine(jnp.ones(3)) * y,
    "hessian": jax.hessian(lambda x, y: jnp.sum(jnp.sin(x) * jnp.roll(x, 1) * y)),
    "known loop": lambda x, y: lax.fori_loop(0, 3, lambda i, a: a * 2, 1.0) * x,
    "stopped gradient": lambda x, y: lax.stop_gradient(x) * y,
    # constants
    "constant": lambda x, y: jnp.ones(3),
    "nothing": lambda x, y: 0 * x,
    "sum of nothings": lambda x, y: 0 * x + jnp.zeros(3) * y,
}

LOOPS = {
    "scan": (lambda x, y: lax.scan(lambda c, a: (c * a, c), x[0], y)[1], "scan"),
    "loop over traced values": (lambda x, y: lax.fori_loop(0, 3, lambda i, a: a * y, x), "scan"),
    "while": (
        lambda x, y: lax.while_loop(lambda a: jnp.sum(a) < 10, lambda a: a * 2, jnp.abs(x)),
        "while",
    ),
    "cond": (lambda x, y: lax.cond(x[0] > 0, lambda: x, lambda: y), "cond"),
    "table": (
        lambda x, y: jnp.asarray(TABLE)[jnp.floor(jnp.abs(x[0])).astype(jnp.int32)] * y,
        "dynamic_slice at traced positions",
    ),
    "gather at traced places": (
        lambda x, y: jnp.asarray(TABLE)[jnp.floor(jnp.abs(x)).astype(jnp.int32)] * y,
        "gather at traced positions",
    ),
    "scatter at traced places": (
        lambda x, y: jnp.zeros(3).at[jnp.floor(jnp.abs(x)).astype(jnp.int32)].add(y),
        "scatter at traced positions",
    ),
    "reduction by an own operation": (
        lambda x, y: lax.reduce(x, np.float64(1), lambda a, b: a * b + 0 * a, (0,)) * y,
        "reduce",
    ),
    "reduction of windows": (
        lambda x, y: lax.reduce_window(x, np.float64(1), lax.mul, (2,), (1,), "valid") * y[1:],
        "reduce_window",
    ),
    "bits in other pieces": (
        lambda x, y: lax.bitcast_convert_type(x, jnp.uint32),
        "bitcast_convert_type to another width",
    ),
    "sort": (lambda x, y: jnp.sort(x), "sort"),
    "cumprod": (lambda x, y: jnp.cumprod(x), "cumprod"),
    "solve": (lambda x, y: jnp.linalg.solve(jnp.outer(x, x) + 3 * jnp.eye(3), y), "lu"),
    "fft": (lambda x, y: jnp.real(jnp.fft.fft(x)), "convert_element_type of complex"),
}

DIFFERENTIABLE = (
    "slices",
    "roll",
    "stack",
    "pad with a value",
    "split",
    "gather",
    "gather from a matrix",
    "dynamic update at a known place",
    "scatter-add",
    "tree",
    "vector times matrices",
    "einsum",
    "batched dot",
    "cross product",
    "variance",
    "product",
    "maximum",
    "cumsum",
    "cumsum backwards",
    "norm",
    "pairs",
    "integer powers",
    "power zero",
    "power of a power",
    "hypot",
    "inverse circular",
    "hyperbolic",
    "base two",
    "error function",
    "sinc",
    "logsumexp",
    "softplus",
    "gelu",
    "where",
    "clip",
    "absolute value",
    "remainder",
    "float32 and back",
    "remat",
    "known loop",
    "stopped gradient",
    "constant",
)

if hasattr(lax, "polynomial"):
    FUNCTIONS["polynomials"] = polynomials
    DIFFERENTIABLE = (*DIFFERENTIABLE, "polynomials")
else:  # Before JAX 0.12 `jnp.polyval` is a loop.
    LOOPS["polynomials"] = (polynomials, "scan")
