"""Files of Parquet, CSV or JSON lines become messages of a queue, or records of a topic."""
