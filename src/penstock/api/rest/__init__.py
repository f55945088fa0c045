"""REST: queues in JSON, MessagePack and frames. It translates, and decides nothing."""
