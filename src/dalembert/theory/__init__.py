"""The theorems about systems and methods, as functions that one can run."""
