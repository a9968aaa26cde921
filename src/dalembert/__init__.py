"""Structure-preserving simulation of noisy, damped mechanical systems."""
