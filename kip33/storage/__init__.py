"""Where bytes live: locations, listings, whole-file publishing, the catalog, one segment."""
