"""The engine of vector instructions; what makes them is loaded when it is asked (`native.py`)."""

from typing import Any

from dalembert.ensemble.engine import OnBlock, OtherDeviceError, RefusedError, Steps


class VectorCode:
    """Vector instructions of this processor, made with LLVM: a block stays in its registers."""

    name = "vector code (LLVM)"

    def compile(self, steps: Steps) -> OnBlock:
        if steps.backend != "cpu":
            raise OtherDeviceError("for CPUs only")
        try:
            from dalembert.ensemble.native import vector_march
        except ImportError:
            raise RefusedError("llvmlite is missing (pip install llvmlite)") from None
        return vector_march(steps)

    def means_at_end(self, kernel: Any, steps: Steps) -> Any:
        from dalembert.ensemble.native_means import means_at_end

        return means_at_end(kernel, steps)
