SELECT queue_range, is_range_claimed, (SELECT max(number) FROM penstock.queue) FROM penstock.moment
