"""Plain numerics: exact integer products, orthonormal bases. Of `privacy`, only the public matrix X is used."""
