-- What a sender was answered the first time, NULL if this send is new; other sends of the sender wait until it is done.
CREATE OR REPLACE FUNCTION penstock.find_sent(
    p_queue integer, p_now bigint, p_sender bigint, p_epoch bigint, p_sequence bigint
) RETURNS bytea
LANGUAGE plpgsql AS $$
DECLARE
    v_known penstock.sender;
    v_keys bytea;
BEGIN
    INSERT INTO penstock.sender AS known (queue, id, epoch, seen_at_ms) VALUES (p_queue, p_sender, p_epoch, p_now)
    ON CONFLICT (queue, id) DO UPDATE SET seen_at_ms = greatest(known.seen_at_ms, p_now)
    RETURNING * INTO v_known;
    IF p_epoch < v_known.epoch THEN
        RAISE EXCEPTION 'fenced' USING ERRCODE = 'PS003', DETAIL = v_known.epoch::text;
    ELSIF p_epoch > v_known.epoch THEN
        DELETE FROM penstock.sent WHERE queue = p_queue AND sender = p_sender;
        UPDATE penstock.sender SET epoch = p_epoch, floor = NULL WHERE queue = p_queue AND id = p_sender;
        RETURN NULL;
    END IF;
    SELECT keys INTO v_keys FROM penstock.sent
    WHERE queue = p_queue AND sender = p_sender AND sequence = p_sequence;
    IF NOT FOUND AND p_sequence <= v_known.floor THEN
        RAISE EXCEPTION 'forgotten' USING ERRCODE = 'PS004';
    END IF;
    RETURN v_keys;
END $$
