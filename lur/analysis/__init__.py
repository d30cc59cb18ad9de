"""Analysis: the local surrogate of a trained network, the cost of a round, contact sheets of datasets."""
