"""The catalog: its schema, its snapshots, and what is counted and removed in it."""
