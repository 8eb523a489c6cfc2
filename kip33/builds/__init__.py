"""A build from one night to the next: plan, reuse, index files, commit."""
