"""An archive: settled messages as a Delta table, each row once, and its upkeep.

    files       what a task does: a slice of the history becomes Parquet files
    position    where the archive goes on, and what the next batch is
    job         the job: the history, batch by batch, then the dead letters, then what the server may drop

`docs/explanation/the-archive.md` tells why it is so.
"""
