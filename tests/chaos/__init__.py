"""Long runs against real disks: many kills, true power cuts, a disk that fails its fsync, flipped bits.

`make chaos` runs them; `make test` does not. Each run has a seed of its own,
which is part of every test's name; `CHAOS_SEED=… make chaos` makes the same
choices again. Scheduling stays the machine's own.
"""
