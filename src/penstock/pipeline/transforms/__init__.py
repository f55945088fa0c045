"""DataFrame in, DataFrame out: no reading, no writing, no clock. Built-in functions before anything else."""
