"""Find the segments below a SOURCE and the places of their index files."""
