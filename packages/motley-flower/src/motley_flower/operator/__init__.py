"""What the operator of a deployment gets: kits of keys and certificates for each party, a proxy,
and a check of the doors."""
