"""Tests of penstock.pipeline.service."""
