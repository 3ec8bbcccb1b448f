"""A Flower app that trains on scikit-learn's digits; Motley chooses the clients."""
