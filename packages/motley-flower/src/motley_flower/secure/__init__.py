"""Secure aggregation: a server learns the sum of its clients' vectors and no single one.

The protocol is that of Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving
Machine Learning" (CCS 2017), with double masking. :mod:`~motley_flower.secure.encoding` makes
integers of numbers, :mod:`~motley_flower.secure.masking_client` and
:mod:`~motley_flower.secure.server` are the two sides, and neither knows how messages
travel. ``docs/deploy/secure-aggregation.md``.
"""
