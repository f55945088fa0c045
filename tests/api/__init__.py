"""Tests of the front ends: the applications are called in process, without a network."""
