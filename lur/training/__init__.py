"""Training runs and sweeps: configuration, loop, evaluation."""
