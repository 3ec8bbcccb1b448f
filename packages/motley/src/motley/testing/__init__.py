"""Contract suites for our and others' components; imported by nobody in the package.

``motley.testing.selectors.check_selector`` plays a small synthetic federation against a selection
rule, ``motley.testing.algorithms.check_algorithm`` trains one with a method.
"""
