"""Tests of the log, most of them on a disk in memory that fails on demand."""
