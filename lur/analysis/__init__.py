"""Diagnosis of trained networks, and the cost of a round."""
