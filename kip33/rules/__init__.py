"""The decisions of KIP-33 and of Kafka as pure functions: numbers in, decisions out."""
