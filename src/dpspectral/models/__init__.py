"""scikit-learn's interface, and recommenders."""
