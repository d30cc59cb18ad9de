"""Benchmarks: `speed` measures rounds per second against other ways to run the same rounds."""
