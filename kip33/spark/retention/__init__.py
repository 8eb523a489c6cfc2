"""Which segments may be deleted: judge, plan, check and apply."""
