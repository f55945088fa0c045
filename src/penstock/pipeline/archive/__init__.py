"""An archive: settled messages as Parquet files, and a manifest of those that count.

    layout      what is where below the root of an archive
    manifest    one entry for each committed batch, in a chain without gaps
    staging     a batch as Parquet files that do not count yet (Spark)
    begins      where a run begins: where the manifest ends
    stream      batch after batch, as Spark hands them over
    committing  how they come to count: exactly once, wherever it is cut off
    locking     one archiver at a time, for courtesy; that rows are never doubled does not rest on it
    asking      what the archive job asks a server
    letters     the dead letters as they are now, one file that is replaced as a whole

`docs/explanation/the-archive.md` tells why it is so.
"""
