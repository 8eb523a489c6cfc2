"""KIP-33's decisions: numbers in, decisions out."""
