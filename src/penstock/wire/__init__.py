"""What clients and the server say to each other: types and bytes, nothing that runs."""
