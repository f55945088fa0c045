SELECT max(at_offset) FROM penstock.history WHERE at_offset < %s
