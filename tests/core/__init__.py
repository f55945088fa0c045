"""The core: values in, values out."""
