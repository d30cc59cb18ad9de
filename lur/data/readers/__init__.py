"""Readers of the published federated formats: one module per format, one client at a time, no file trusted.

Each module has ``clients(path, ...)``, which yields (client id, examples), and ``count(path, ...)``, which
returns the number of clients, or None where counting them is expensive. A client without examples has no features;
`lur.data.importing` leaves it out and counts it. A file that is truncated,
corrupted or of another kind raises a `lur.data.store.StoreError` that names the file, the client and what was expected.
"""
