"""Tests of what clients and the server say to each other."""
