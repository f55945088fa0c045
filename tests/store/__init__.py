"""Tests of the stores and what they are made of."""
