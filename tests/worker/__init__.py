"""Workers: what becomes of messages, of leases and of the process."""
