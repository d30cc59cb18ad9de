"""Benchmark of the client store at the size of Stack Overflow."""
