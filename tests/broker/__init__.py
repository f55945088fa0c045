"""The broker: waiting, rights, and what is counted."""
