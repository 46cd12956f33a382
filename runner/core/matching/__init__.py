"""Text matching under time limits: LLVM FileCheck, regular expressions, and what of generated code is code."""
