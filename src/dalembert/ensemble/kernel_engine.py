"""The engine of one GPU kernel; what makes it is loaded when it is asked (`registers.py`)."""

from dalembert.ensemble.compiled import by_xla
from dalembert.ensemble.engine import OnBlock, OtherDeviceError, RefusedError, Steps


class KernelInRegisters:
    """One GPU kernel for a whole stretch of steps, with states and noise in registers."""

    name = "one GPU kernel (Pallas)"

    def compile(self, steps: Steps) -> OnBlock:
        if steps.backend not in ("cuda", "gpu"):
            raise OtherDeviceError("for NVIDIA GPUs only")
        return self.compile_anywhere(steps)

    def compile_anywhere(self, steps: Steps) -> OnBlock:
        """`compile` without looking at the device: tests interpret the kernel on a CPU."""
        from dalembert.ensemble.registers import march_in_registers, why_not_in_registers

        params = steps.stepper.system.params if steps.maps is None else steps.maps
        given = steps.fast, steps.fast_noise, steps.needs, params, steps.paths
        if reason := why_not_in_registers(*given):
            raise RefusedError(reason)
        return by_xla(steps, march_in_registers)
