"""Where bytes live: URIs, file systems and object stores, ranged reads, atomic writes."""
