"""The catalog: its schema and its snapshots, totals, differences and pruning."""
