"""Bytes to values and back: record batches, records, CRCs, index files, file names."""
