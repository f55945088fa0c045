"""Topics and consumer groups in logs of a folder."""
