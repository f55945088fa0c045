"""Penstock: a durable message queue for Python teams."""

__version__ = "0.1.0.dev0"
