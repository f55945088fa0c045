"""Tests of penstock.pipeline.whatif."""
