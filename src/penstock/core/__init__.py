"""DECIDES. Pure: time and chance are arguments, nothing does I/O."""
