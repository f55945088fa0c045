"""A listener, and a whole server, spoken to over real sockets."""
