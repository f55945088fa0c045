"""Consumer groups: values in, values out."""
