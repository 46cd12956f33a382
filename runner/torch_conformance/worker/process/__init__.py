"""The processes that import torch: zygote, entry of a worker, reset between cases."""
