"""REMEMBERS BYTES. A log of record batches that never loses what it acknowledged."""
