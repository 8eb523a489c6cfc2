"""Offsets for times, and records: in a segment, a partition, a catalog."""
