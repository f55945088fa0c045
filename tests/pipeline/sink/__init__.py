"""Tests of penstock.pipeline.sink."""
