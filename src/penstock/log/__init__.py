"""REMEMBERS BYTES. A log of record batches that never loses what it acknowledged."""

import sys

if sys.byteorder != "little":
    # Frames and indexes are columns of numbers as the processor has them, so that no loop reads them.
    raise ImportError("Penstock's files are little-endian, and this machine is not")
