"""The life of the messages of a queue."""
