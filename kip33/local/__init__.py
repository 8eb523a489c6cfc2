"""The engine of this machine: bins in this process, or in worker processes beside it."""
