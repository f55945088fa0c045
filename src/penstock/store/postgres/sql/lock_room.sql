-- Wait for everyone who takes or gives room of a queue, and answer with how many messages more it may hold.
CREATE OR REPLACE FUNCTION penstock.lock_room(p_queue integer) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM penstock.room WHERE queue = p_queue ORDER BY slot FOR UPDATE;
    RETURN (SELECT sum(free) FROM penstock.room WHERE queue = p_queue);
END $$
