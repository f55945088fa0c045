"""The PostgreSQL store beside what teams run on PostgreSQL today. Run it with ``python -m bench.postgres``.

Its peers are PGMQ, whose SQL file is not ours to ship: name yours in ``PGMQ_SQL``; and, for jobs through a worker,
Procrastinate and PgQueuer. All of them, and we, are in one server of PostgreSQL, started for the run with
``fsync`` on, each in a database of its own; sides take turns, and a ratio is between what was measured in one run.
"""
