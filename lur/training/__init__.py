"""Training runs and sweeps: configuration, experiment, loop, evaluation."""
