"""Topics and consumer groups in tables of PostgreSQL, served by any number of equal servers."""
