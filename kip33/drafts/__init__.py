"""The index designs that KIP-33 weighed and did not keep."""
