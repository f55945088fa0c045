"""The console: the pages that a browser shows at `/`, and what they ask beyond the REST API."""
