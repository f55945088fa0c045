"""The source under test: sizes, names, promises, and who touches the outside world."""
