-- What a group has committed, for topics that are there.
SELECT topic.name, kept.partition, kept.next, kept.leader_epoch, kept.metadata, kept.committed_at_ms, kept.expires_at_ms
  FROM penstock.committed_offset AS kept JOIN penstock.topic ON topic.number = kept.topic AND NOT topic.is_deleted
 WHERE kept.group_name = %(group)s
