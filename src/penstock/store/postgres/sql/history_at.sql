-- The first row that was settled at an instant or later. Transactions are in the order of time, or nearly.
SELECT min(at_offset) FROM penstock.history WHERE settled_at_ms >= %s
