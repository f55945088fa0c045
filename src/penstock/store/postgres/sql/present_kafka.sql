-- Say where Kafka clients reach a server. No answer relies on it, so it does not wait for a standby.
UPDATE penstock.node SET kafka = %(kafka)s
  FROM (
      SELECT set_config(
          'synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'off' ELSE 'local' END, true
      ) AS level
  ) AS waits
 WHERE name = %(node)s AND incarnation = %(incarnation)s AND waits.level IS NOT NULL
RETURNING name
