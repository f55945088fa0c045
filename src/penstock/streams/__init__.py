"""Topics of partitions: logs that are kept for a time or a size and can be read again."""
