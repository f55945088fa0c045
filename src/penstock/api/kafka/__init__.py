"""Kafka's protocol as a front end: its words and numbers stop here."""
