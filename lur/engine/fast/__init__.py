"""Rewrites of the reference methods that compute the same numbers faster."""
