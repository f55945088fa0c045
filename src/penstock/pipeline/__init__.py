"""The data pipeline on Spark: it remembers what a queue forgets.

    source/    `spark.read.format("penstock")`: history, live messages and topics as DataFrames
    sink/      `df.write.format("penstock")`: rows become messages or records, once
    archive/   settled messages as a Delta table, each row exactly once
    signals/   traffic, latency, errors and saturation of a history, and broken promises of fairness
    triage/    dead letters by cause
    audit/     every number that a queue gave is live, or was settled exactly once
    whatif/    a history served again under other settings
    load/      files become messages or records
    replay     settled messages are sent once more
    skew       what has most of the messages, of the work and of the failures
    reports/   HTML pages and folders of results

A job is a function `run(spark, options, progress) -> Outcome` in `<feature>/job.py`. It is safe to kill at any moment
and to run again. What jobs share stands beside the folders: `locations` (where history is read from), `incremental`
(what a run leaves for the next one), `staging` (rows that are fixed before they are sent), `options`, `http` and
`storage`.

Executors run `source`, `sink`, `signals.lines`, `audit.look` and `whatif.comparison`. These import nothing but the
standard library, pyarrow, numpy and what is shipped with `--py-files`, except where they say so.
"""
