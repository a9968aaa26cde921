"""Many paths: the block kernel, streaming statistics, the ensemble and its result."""
