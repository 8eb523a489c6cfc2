"""Which segments are below a SOURCE, and where their index files belong."""
