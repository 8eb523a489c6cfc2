"""The local engine: processes bins in this process, or in worker processes."""
