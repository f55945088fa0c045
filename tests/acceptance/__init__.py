"""Real processes on a real disk: they are killed, refused, starved of space, and looked at afterwards."""
