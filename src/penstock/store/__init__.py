"""REMEMBERS QUEUES. One interface; an engine behind it for each place to remember."""
