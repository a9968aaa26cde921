"""A double well with friction and fluctuating stiffness: your own system in a few lines.

Diagnose it with   dalembert diagnose examples/own_system.py
"""

import dalembert as da


def H(q, p):
    """Kinetic energy and a double well with minima at ±1."""
    return p[0] ** 2 / 2 + (q[0] ** 2 - 1) ** 2 / 4


def F(q, p):
    """Friction."""
    return -0.1 * p


def h(q, p):
    """The stiffness of the well fluctuates."""
    return 0.2 * q[0] ** 2 / 2


system = da.System(H=H, F=F, h=[h], dim=1, name="double well")

if __name__ == "__main__":
    run = da.simulate(system, da.midpoint(), ([1.0], [0.5]), dt=0.1, t_end=50.0, paths=2000)
    print(run)
