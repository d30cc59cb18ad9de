"""Runs that survive: a folder with the configuration, the environment, logs of JSON lines, and checkpoints."""
