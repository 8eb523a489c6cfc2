"""What a program holds in its hand without Spark: a catalog as one object, and a plan to apply."""
