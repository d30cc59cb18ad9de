"""Methods as plain numpy loops, one file each, from the pseudo-code of their papers; no file imports lur.

A file has ``run(x, gradient, rounds, ...)``. ``gradient(x, *batch)`` is that of a mini-batch, and `rounds` holds for
each round a dict from the clients that take part to the list of their own mini-batches.
"""
