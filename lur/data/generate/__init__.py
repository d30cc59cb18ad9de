"""Generated federated datasets: stand-ins for the paper's four, without any download.

========================  =====================  ==========================================
module                    stands in for          a client is
========================  =====================  ==========================================
`generate.handwriting`    FEMNIST                a writer: pixels, label
`generate.images`         CIFAR-100              a draw of a Pachinko allocation: image, label, coarse_label
`generate.dialect`        Shakespeare            a role: snippets
`generate.posts`          Stack Overflow         a user: creation_date, score, tags, title, tokens, type
========================  =====================  ==========================================

Each module has ``clients(num_clients, *, seed, heterogeneity, ...)``, which returns an iterator of
``(client id, features)`` with the feature names and types of TensorFlow Federated. At ``heterogeneity`` 0 all clients
draw from one distribution; the default is 1, and clients differ more as it grows.
"""
