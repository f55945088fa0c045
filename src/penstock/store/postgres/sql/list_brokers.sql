-- Where Kafka clients reach the servers that serve.
SELECT name, kafka FROM penstock.node
 WHERE kafka <> '' AND state = 'serving' AND beat_at > clock_timestamp() - make_interval(secs => %(lost_ms)s / 1000.0)
 ORDER BY name
