"""The `kip33` command; one module per command."""
