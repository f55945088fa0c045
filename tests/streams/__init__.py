"""Topics and partitions: what is promised to producers and consumers."""
