"""Plain numerics: exact integer products, orthonormal bases. Nothing here knows about privacy."""
