-- Remember what a sender was answered, and forget the lowest sequence if there are too many.
CREATE OR REPLACE FUNCTION penstock.remember_sent(
    p_queue integer, p_sender bigint, p_sequence bigint, p_keys bytea, p_most integer
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    v_lowest bigint;
BEGIN
    INSERT INTO penstock.sent (queue, sender, sequence, keys) VALUES (p_queue, p_sender, p_sequence, p_keys);
    SELECT sequence INTO v_lowest FROM penstock.sent
    WHERE queue = p_queue AND sender = p_sender ORDER BY sequence DESC OFFSET p_most LIMIT 1;
    IF FOUND THEN
        DELETE FROM penstock.sent WHERE queue = p_queue AND sender = p_sender AND sequence = v_lowest;
        UPDATE penstock.sender SET floor = v_lowest WHERE queue = p_queue AND id = p_sender;
    END IF;
END $$
