"""The bench itself: figures are worth nothing if it counts wrongly, or cannot start what it measures."""
