"""What an archive's batches say about its brokers and producers: audits of complete archives."""
