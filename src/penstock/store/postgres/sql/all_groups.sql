-- All groups, each with its last generation and whether its coordinator is heard.
SELECT g.name, g.generation, node.name IS NOT NULL
  FROM penstock.consumer_group AS g
  LEFT JOIN penstock.node ON node.name = g.node AND node.incarnation = g.incarnation AND node.state = 'serving'
   AND node.beat_at > clock_timestamp() - make_interval(secs => %(lost_ms)s / 1000.0)
 ORDER BY g.name
