"""The pipeline on a real Spark."""
