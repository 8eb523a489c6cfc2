"""What a program uses without Spark: a catalog as one object, and a plan to apply."""
