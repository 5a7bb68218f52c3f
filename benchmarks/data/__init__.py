"""What cases measure on: tables, Variants, JSON texts, and the bytes that they consist of."""
