"""Tests of penstock.pipeline.source."""
