"""The processes that import torch: the zygote and its workers."""
