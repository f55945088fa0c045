"""REMEMBERS STREAMS. Topics of partitions that are read again and again, and who has read how far."""
