"""Tests of penstock.pipeline.triage."""
