"""Bytes to values and back: no socket, no clock, no broker."""
