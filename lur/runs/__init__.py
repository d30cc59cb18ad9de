"""Run folders: configuration, environment, logs and checkpoints of runs that can be killed and resumed."""
