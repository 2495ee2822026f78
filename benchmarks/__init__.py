"""jaxchunk beside its peers on the same work: ``python -m benchmarks --help``.

rows      the work, written once against an array namespace
data      the inputs, made once
peers     how each library opens, computes and writes
floor     the least that any of them can do: read the input, write the output
child     one row by one peer, in a process of its own
harness   starts those processes, measures them, repeats
check     are the results right?
report    the Markdown table
loops     two small ones: a step of a loop on tiny arrays; planning a million chunks
"""

from pathlib import Path

ROOT = Path(__file__).parent.parent
