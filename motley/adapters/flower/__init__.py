"""Motley in a Flower deployment: ``pip install 'motley-fl[flower]'``.

Nothing here loads Flower before it is used.
"""
