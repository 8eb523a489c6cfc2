"""An archive as a table: records, batches and segments as Arrow record batches."""
