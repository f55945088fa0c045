"""The golden signals of a history: traffic, latency, errors and saturation, and broken promises of fairness."""
