"""Clock, dice, disk and threads: the interfaces, and the real ones.

Everything above this package is *given* a `Runtime` and touches the outside
world through it alone, so that a whole cluster can run in one thread from one
seed, and a disk can fail at any step a test chooses.
"""
