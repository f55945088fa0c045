"""The PostgreSQL store and whatever stands on it, with a real PostgreSQL."""
