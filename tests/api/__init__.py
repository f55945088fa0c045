"""The front ends, each spoken to in its own words."""
