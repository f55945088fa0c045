"""Front ends: each translates one protocol into the words of the broker."""
