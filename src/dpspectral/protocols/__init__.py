"""Many holders of rows: sums without a curator."""
