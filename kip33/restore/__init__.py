"""Change a copied partition before a broker gets it: truncation to an offset."""
