"""Find offsets for times, and read records: in a segment, a partition, a catalog."""
