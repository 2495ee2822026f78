"""Runs the array API standard's own test suite on jaxchunk: `python -m conformance --help`."""
