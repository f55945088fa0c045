"""Tests of penstock.pipeline.signals."""
