"""An archive: settled messages as Parquet files, and a manifest of those that count.

    manifest    one entry for each committed batch, in a chain without gaps; and what is where in an archive
    stream      batch after batch, as Spark hands them over: where a run begins, and files that do not count yet
    commit      how files come to count: exactly once, wherever it is cut off
    lock        one archiver at a time, for courtesy; that rows are never doubled does not rest on it
    job         the job: the history, then the dead letters, then what the server may drop

`docs/explanation/the-archive.md` tells why it is so.
"""
