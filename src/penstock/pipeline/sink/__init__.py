"""`df.write.format("penstock")`: rows become messages, and a row that comes twice becomes one message."""
