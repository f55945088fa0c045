"""SHOWS: what an operator asks a running server, for people and for Prometheus."""
