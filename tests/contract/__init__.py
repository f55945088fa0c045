"""What both sides agree on: its tables are whole, and everything that is made from them follows them."""
