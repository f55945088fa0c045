-- It is told a time, too, and whether to drop what goes.
DROP FUNCTION IF EXISTS penstock.trim_history(bigint);
