"""Text matching with time limits: LLVM FileCheck, regular expressions, and the code part of
generated files.
"""
