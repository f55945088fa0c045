"""What `deploy/` ships: checked by its own tools, and by hand where no container can run."""
