"""The methods' papers in plain numpy, one file per method. They import nothing of lur and share no code.

``run(x, rounds, gradient, gamma, eta, ...)`` returns the model after the rounds. Each round is a list of clients
``(index, weight, mini-batches)``, whose weights sum to 1; ``gradient(x, batch)`` is the gradient of the mean loss.
"""
