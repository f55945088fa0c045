"""What every side agrees on, each fact once: settings, limits, names, priorities, outcomes and columns.

The core, the wire, the client and the executors of Spark import it, so it needs nothing but the standard library.
"""
