"""One segment end to end: scan it, build its indexes, verify them."""
