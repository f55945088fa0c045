"""Tests of penstock.pipeline.audit."""
