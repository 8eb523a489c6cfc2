"""A page about an archive: the facts of a catalog as one HTML file, and as JSON beside it."""
