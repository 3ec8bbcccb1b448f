"""Whether two versions of the code give the same results, to the last bit."""
