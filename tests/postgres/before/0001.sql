-- What a server of schema version 1 had left: messages in every place, a lease, dead letters, ids, history.
CREATE SEQUENCE penstock.lane_1_0 MINVALUE 0;
CREATE SEQUENCE penstock.lane_1_1 MINVALUE 0;
CREATE SEQUENCE penstock.lane_1_2 MINVALUE 0;
SELECT setval('penstock.lane_1_2', 10);
CREATE SEQUENCE penstock.lane_1_3 MINVALUE 0;
CREATE SEQUENCE penstock.lane_1_4 MINVALUE 0;
CREATE SEQUENCE penstock.lane_2_0 MINVALUE 0;
CREATE SEQUENCE penstock.lane_2_1 MINVALUE 0;
CREATE SEQUENCE penstock.lane_2_2 MINVALUE 0;
SELECT setval('penstock.lane_2_2', 2);
CREATE SEQUENCE penstock.lane_2_3 MINVALUE 0;
CREATE SEQUENCE penstock.lane_2_4 MINVALUE 0;
CREATE SEQUENCE penstock.lane_3_0 MINVALUE 0;
CREATE SEQUENCE penstock.lane_3_1 MINVALUE 0;
CREATE SEQUENCE penstock.lane_3_2 MINVALUE 0;
SELECT setval('penstock.lane_3_2', 0);
CREATE SEQUENCE penstock.lane_3_3 MINVALUE 0;
CREATE SEQUENCE penstock.lane_3_4 MINVALUE 0;
SELECT setval('penstock.queue_number', 3);
SELECT setval('penstock.queue_version', 3);
SELECT setval('penstock.lease_number', 4);
SELECT setval('penstock.ordinal', 10);
SELECT setval('penstock.turn', 1);
UPDATE penstock.moment SET at_ms = 1700000000000, period_began_at_ms = 1700000000000;
INSERT INTO penstock.queue (number, name, settings, version, grave, lanes, created_at_ms)
VALUES (1, 'orders', '{"is_fifo":false,"lease_ms":30000,"delay_ms":0,"retention_ms":0,"deliveries_max":1,"back_after_deliveries":0,"backoff_ms_base":1000,"backoff_ms_max":900000,"has_jitter":false,"dead_letters":"","dedup_scope":"live","dedup_window_ms":300000,"is_strict":false,"weights":[16,8,4,2,1],"aging_ms":[0,0,0,1800000,3600000],"size_max":0,"body_bytes_max":1048576,"reserve_percent":[0,2,5,10,20],"noisy_percent":10,"noisy_leased_min":30,"noisy_time_percent":10,"is_paused":false,"history":"facts","labels":""}', 1, 'orders.dead', ARRAY['penstock.lane_1_0'::regclass::oid, 'penstock.lane_1_1'::regclass::oid, 'penstock.lane_1_2'::regclass::oid, 'penstock.lane_1_3'::regclass::oid, 'penstock.lane_1_4'::regclass::oid], 1700000000000);
INSERT INTO penstock.queue (number, name, settings, version, grave, lanes, created_at_ms)
VALUES (2, 'letters', '{"is_fifo":true,"lease_ms":30000,"delay_ms":0,"retention_ms":0,"deliveries_max":5,"back_after_deliveries":0,"backoff_ms_base":1000,"backoff_ms_max":900000,"has_jitter":true,"dead_letters":"","dedup_scope":"window","dedup_window_ms":300000,"is_strict":false,"weights":[16,8,4,2,1],"aging_ms":[0,0,0,1800000,3600000],"size_max":0,"body_bytes_max":1048576,"reserve_percent":[0,2,5,10,20],"noisy_percent":10,"noisy_leased_min":30,"noisy_time_percent":10,"is_paused":false,"history":"facts","labels":""}', 2, 'letters.dead', ARRAY['penstock.lane_2_0'::regclass::oid, 'penstock.lane_2_1'::regclass::oid, 'penstock.lane_2_2'::regclass::oid, 'penstock.lane_2_3'::regclass::oid, 'penstock.lane_2_4'::regclass::oid], 1700000000000);
INSERT INTO penstock.queue (number, name, settings, version, grave, lanes, created_at_ms)
VALUES (3, 'orders.dead', '{"is_fifo":false,"lease_ms":30000,"delay_ms":0,"retention_ms":1209600000,"deliveries_max":0,"back_after_deliveries":0,"backoff_ms_base":1000,"backoff_ms_max":900000,"has_jitter":true,"dead_letters":"","dedup_scope":"window","dedup_window_ms":300000,"is_strict":false,"weights":[16,8,4,2,1],"aging_ms":[0,0,0,1800000,3600000],"size_max":0,"body_bytes_max":1048576,"reserve_percent":[0,2,5,10,20],"noisy_percent":10,"noisy_leased_min":30,"noisy_time_percent":10,"is_paused":false,"history":"facts","labels":""}', 3, 'orders.dead.dead', ARRAY['penstock.lane_3_0'::regclass::oid, 'penstock.lane_3_1'::regclass::oid, 'penstock.lane_3_2'::regclass::oid, 'penstock.lane_3_3'::regclass::oid, 'penstock.lane_3_4'::regclass::oid], 1700000000000);
INSERT INTO penstock.ready (queue, tier, number, sent_at_ms, body, attributes)
VALUES (1, 2, 4, 1700000000000, '\x706c61696e2031', '\x78');
INSERT INTO penstock.ready (queue, tier, number, sent_at_ms, body)
VALUES (1, 2, 5, 1700000000000, '\x706c61696e2032');
INSERT INTO penstock.ready (queue, tier, number, sent_at_ms, body)
VALUES (1, 2, 9, 1700000000000, '\x73656e646572');
INSERT INTO penstock.marked (queue, key, tier, state, since_ms, ordinal, turn, visible_at_ms, sent_at_ms, deliveries, deliveries_max, first_leased_ms, last_leased_ms, served_tier, grp, body)
VALUES (1, 50, 2, 1, 1700000000000, 4, 1700000000000, 0, 1700000000000, 0, 0, 0, 0, 2, '\x67', '\x67726f75706564');
INSERT INTO penstock.marked (queue, key, tier, state, since_ms, ordinal, visible_at_ms, sent_at_ms, deliveries, deliveries_max, first_leased_ms, last_leased_ms, served_tier, body)
VALUES (1, 58, 2, 2, 1700000000000, 5, 1700000060000, 1700000000000, 0, 0, 0, 0, 2, '\x64656c61796564');
INSERT INTO penstock.marked (queue, key, tier, state, since_ms, ordinal, visible_at_ms, sent_at_ms, deliveries, deliveries_max, first_leased_ms, last_leased_ms, served_tier, dedup_id, body)
VALUES (1, 66, 2, 1, 1700000000000, 6, 0, 1700000000000, 0, 0, 0, 0, 2, '\x6f6e6365', '\x6b6e6f776e');
INSERT INTO penstock.marked (queue, key, tier, state, since_ms, ordinal, visible_at_ms, sent_at_ms, deliveries, deliveries_max, first_leased_ms, last_leased_ms, served_tier, own_tier, escalated_until_ms, body)
VALUES (1, 82, 0, 1, 1700000000000, 7, 0, 1700000000000, 0, 0, 0, 0, 2, 2, 0, '\x757267656e74');
INSERT INTO penstock.marked (queue, key, tier, state, since_ms, ordinal, visible_at_ms, sent_at_ms, deliveries, deliveries_max, first_leased_ms, last_leased_ms, served_tier, grp, body)
VALUES (2, 10, 2, 1, 1700000000000, 9, 0, 1700000000000, 0, 0, 0, 0, 2, '\x67', '\x32');
INSERT INTO penstock.marked (queue, key, tier, state, since_ms, ordinal, visible_at_ms, sent_at_ms, deliveries, deliveries_max, first_leased_ms, last_leased_ms, served_tier, grp, body)
VALUES (2, 18, 2, 1, 1700000000000, 10, 0, 1700000000000, 0, 0, 0, 0, 2, '\x67', '\x33');
INSERT INTO penstock.marked (queue, key, tier, state, since_ms, ordinal, visible_at_ms, sent_at_ms, deliveries, deliveries_max, first_leased_ms, last_leased_ms, served_tier, error, home, home_key, home_sent_at_ms, home_deliveries, body)
VALUES (3, 2, 2, 1, 1700000000000, 3, 0, 1700000000000, 0, 0, 0, 0, 2, 'no such card', 1, 2, 1700000000000, 1, '\x7370656e74');
INSERT INTO penstock.lease (number, queue, token, held, leased_at_ms, lease_ms, until_ms, wakes_at_ms, has_own_ends, is_rearmed)
VALUES (3, 1, 3384662785363127837, 2, 1700000000000, 3600000, 1700003600000, 1700003600000, false, false);
INSERT INTO penstock.lease (number, queue, token, held, leased_at_ms, lease_ms, until_ms, wakes_at_ms, has_own_ends, is_rearmed)
VALUES (4, 2, 6989795898055921116, 1, 1700000000000, 3600000, 1700003600000, 1700003600000, false, false);
INSERT INTO penstock.leased (lease, row, queue, key, tier, served_tier, sent_at_ms, deliveries, body)
VALUES (3, 0, 1, 18, 2, 2, 1700000000000, 1, '\x68656c642031');
INSERT INTO penstock.leased (lease, row, queue, key, tier, served_tier, sent_at_ms, deliveries, body)
VALUES (3, 1, 1, 26, 2, 2, 1700000000000, 1, '\x68656c642032');
INSERT INTO penstock.leased (lease, row, queue, key, tier, served_tier, sent_at_ms, deliveries, since_ms, ordinal, deliveries_max, grp, body)
VALUES (4, 0, 2, 2, 2, 2, 1700000000000, 1, 1700000000000, 8, 0, '\x67', '\x31');
INSERT INTO penstock.line (queue, grp, held, turn)
VALUES (2, '\x67', 1, 1);
INSERT INTO penstock.dedup (queue, id, key)
VALUES (1, '\x6f6e6365', 66);
INSERT INTO penstock.sender (queue, id, epoch, seen_at_ms)
VALUES (1, -9223372036854775801, 0, 1700000000000);
INSERT INTO penstock.sent (queue, sender, sequence, keys)
VALUES (1, -9223372036854775801, -9223372036854775807, '\x000000000000004a');
INSERT INTO penstock.operation (id, at_ms, answer)
VALUES (899214315958955273, 1700000000000, '\x0000000000000042');
INSERT INTO penstock.operation (id, at_ms, answer)
VALUES (1613855648394840385, 1700000000000, '\x00000001');
INSERT INTO penstock.operation (id, at_ms, answer)
VALUES (1884661749048862206, 1700000000000, '\x00000001');
INSERT INTO penstock.operation (id, at_ms, answer)
VALUES (3393905223252535992, 1700000000000, '\x0000000000000022000000000000002a');
INSERT INTO penstock.operation (id, at_ms, answer)
VALUES (3823052460319226055, 1700000000000, '\x000000000000004a');
INSERT INTO penstock.operation (id, at_ms, answer)
VALUES (4160226473444439676, 1700000000000, '\x000000000000003a');
INSERT INTO penstock.operation (id, at_ms, answer)
VALUES (4226667379645431397, 1700000000000, '\x0000000000000002000000000000000a0000000000000012');
INSERT INTO penstock.operation (id, at_ms, answer)
VALUES (5070233441670433252, 1700000000000, '\x0000000000000032');
INSERT INTO penstock.operation (id, at_ms, answer)
VALUES (6224972596432033602, 1700000000000, '\x0000000000000012000000000000001a');
INSERT INTO penstock.operation (id, at_ms, answer)
VALUES (6269287969581707415, 1700000000000, '\x0000000000000052');
INSERT INTO penstock.operation (id, at_ms, answer)
VALUES (7828224309987821018, 1700000000000, '\x000000000000000a');
INSERT INTO penstock.operation (id, at_ms, answer)
VALUES (8842271878937583170, 1700000000000, '\x0000000000000002');
INSERT INTO penstock.escalation (queue, at_ms, actor, reason, tier, until_ms, ids)
VALUES (1, 1700000000000, 'ada', 'a customer waits', 0, 0, ARRAY['1-52']);
INSERT INTO penstock.history (period, at_offset, queue, key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms, deliveries, tier, ending, error)
VALUES (1, 50331648, 1, 2, 1700000000000, 1700000000000, 1700000000000, 1700000000000, 1, 2, 2, 'no such card');
INSERT INTO penstock.history (period, at_offset, queue, key, sent_at_ms, first_leased_ms, last_leased_ms, settled_at_ms, deliveries, tier, ending)
VALUES (1, 67108865, 1, 10, 1700000000000, 1700000000000, 1700000000000, 1700000000000, 1, 2, 1);
