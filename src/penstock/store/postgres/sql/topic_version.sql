-- The version of the last change of any topic.
SELECT version FROM penstock.topic_state
