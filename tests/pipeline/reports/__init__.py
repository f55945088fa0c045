"""Tests of penstock.pipeline.reports."""
