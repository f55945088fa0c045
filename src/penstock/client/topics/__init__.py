"""Topics for programs: producing and consuming over Kafka's protocol, with what a consumer needs around it.

    topic ──► requests (REST: make, describe, browse)
      ├─────► kafka.KafkaConnections ──► aiokafka: one producer for a client
      └─────► consumer ────► aiokafka: a consumer for each loop; commits, retries, dead letters

`pip install "penstock[kafka]"` brings aiokafka. Nothing here imports it before it is needed.
"""
