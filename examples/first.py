"""The first ten lines: a damped oscillator whose frequency fluctuates."""

import dalembert as da


def H(q, p):
    return (p[0] ** 2 + q[0] ** 2) / 2


system = da.System(
    H=H,  # energy
    F=lambda q, p: -0.001 * p,  # friction
    h=[lambda q, p: 0.5 * H(q, p)],  # noise: one Hamiltonian ...
    f=[lambda q, p: -0.0005 * p],  # ... and one force per Wiener process
    dim=1,
)
run = da.simulate(system, da.dirk(), ([2.0], [0.0]), dt=0.5, t_end=1000.0, paths=2000)
print(run)
