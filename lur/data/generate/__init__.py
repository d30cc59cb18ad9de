"""Generated federated datasets, with nothing to download: stand-ins for the four of the paper.

========================  =====================  ==========================================
module                    stands in for          a client is
========================  =====================  ==========================================
`generate.handwriting`    FEMNIST                a writer: pixels, label
`generate.images`         CIFAR-100              a draw of a Pachinko allocation: image, label, coarse_label
`generate.dialect`        Shakespeare            a role: snippets
`generate.posts`          Stack Overflow         a user: creation_date, score, tags, title, tokens, type
========================  =====================  ==========================================

Each has ``clients(num_clients, *, seed, heterogeneity, ...)``, an iterator of ``(client id, features)``
with the feature names and the types of TensorFlow Federated. ``heterogeneity`` is 0 where all clients
draw from one distribution, 1 by default, and more where they differ more.
"""
