"""The data pipeline on Spark: what a queue forgets, Spark remembers.

    source/       `spark.read.format("penstock")`: history and live messages as DataFrames
    sink/         `df.write.format("penstock")`: rows become messages, once
    transforms/   DataFrame → DataFrame, no reading, no writing
    jobs/         read, transform, write: archive, signals, triage, replay, load, audit, whatif, skew

Executors run `source` and `sink`: these import nothing but the standard library, pyarrow
and what is shipped with `--py-files`, except where they say so.
"""
