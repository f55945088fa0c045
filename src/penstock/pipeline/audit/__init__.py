"""An audit of queues: every number that a queue gave is live, or was settled exactly once."""
