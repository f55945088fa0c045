"""Locust's users against a server: a queue at random, a message in, the message out, its ack, over plain HTTP."""
