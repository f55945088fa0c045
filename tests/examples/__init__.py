"""The programs in examples/, run as their readers run them."""
