"""Tests of penstock.pipeline.archive."""
