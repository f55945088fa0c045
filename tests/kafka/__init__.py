"""The Kafka front end: its wire, its connections, and the clients other people wrote."""
