"""Queues in a PostgreSQL that people already run; docs/design/postgres-store.md has the drawing."""
