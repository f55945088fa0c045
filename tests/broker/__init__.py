"""The broker: whoever waits, whoever may, and what is counted."""
