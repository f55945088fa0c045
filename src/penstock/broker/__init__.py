"""The broker joins stores and front ends: it waits, gathers, repeats and counts; it decides nothing."""
