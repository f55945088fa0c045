"""The pipeline as a service: all jobs of a team in one process with one Spark session, by a file (`pipeline run`)."""
