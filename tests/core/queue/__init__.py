"""The life of the messages of a queue: values in, values out."""
