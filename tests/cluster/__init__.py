"""Several servers over one PostgreSQL with a synchronous standby, as real processes."""
