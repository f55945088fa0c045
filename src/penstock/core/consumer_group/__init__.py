"""Consumer groups, as Kafka's clients know them."""
