"""One suite per interface, run on every implementation of it."""
