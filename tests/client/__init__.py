"""The SDK: its transport against scripted peers, its faces against real applications."""
