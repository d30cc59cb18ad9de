"""Readers of the published federated formats: one file per format, one client at a time, nothing trusted.

Each offers ``clients(path, ...)``, which yields (id, examples) for `lur.data.writer`, and ``count(path, ...)``,
the number of clients where that is cheap to know. A file that is truncated, corrupted or of the wrong kind is a
`lur.data.store.StoreError` that names the file, the client and what was expected.
"""
