"""The jobs: each reads, transforms and writes; what is to be thought is in `transforms`.

A job is a function `run(spark, options, progress) -> Outcome` in a module of its own. It is
safe to kill at any moment and to run again.
"""
