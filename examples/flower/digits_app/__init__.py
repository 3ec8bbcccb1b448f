"""A Flower app: scikit-learn's digits, trained where they lie, by clients that Motley chooses."""
