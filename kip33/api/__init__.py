"""The API without Spark: a catalog as one object, and a plan to apply."""
