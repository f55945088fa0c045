"""Tests of penstock.pipeline.load."""
