"""The command line: what it prints, what it asks for, and how it ends."""
