"""The version of this package, where everyone may look."""

__version__ = "0.1.0"
