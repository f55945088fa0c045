"""The store that needs nothing but a folder: queues remembered by a journal of events."""
