"""Rows become records of a topic: columns as Spark's Kafka sink names them, batches as Kafka's producers make them."""
