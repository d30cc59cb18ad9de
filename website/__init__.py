"""The generator of the documentation site."""
