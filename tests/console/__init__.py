"""The console in a real Chromium, on both stores: each page and each action."""
