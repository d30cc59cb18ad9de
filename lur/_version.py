"""The version of lur."""

__version__ = "0.1.0"
