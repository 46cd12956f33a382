"""``audit --vary``: do guards see what the function of a case depends on? Each case is run with
``sound``, and its other expectations are left out.
"""
