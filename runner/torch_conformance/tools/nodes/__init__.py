"""``audit --nodes``: do the inputs of a case exercise its function? Its graphs are run with one
node changed at a time, without a compiler, and judged by what the case expects.
"""
