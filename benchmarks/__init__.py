"""Benchmarks, in the repository only: `speed` measures rounds, `data` the client store, `paper` reproduces figures."""
