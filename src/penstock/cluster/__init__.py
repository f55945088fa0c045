"""Logs that live on several nodes at once."""
