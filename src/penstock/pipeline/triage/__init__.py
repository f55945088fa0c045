"""Triage: dead letters by cause, with what helps to judge each."""
