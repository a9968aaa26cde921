"""One step: from a tableau and a system to straight-line code that solves the stage equations."""
