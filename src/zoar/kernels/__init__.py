"""Directions replayed from their address, and used where they are made: no direction is ever a vector the size of a model.

reference   in plain torch, on any device: what the numbers are, and what `zoar.ZOOptimizer` runs on
triton      the same for CUDA in one launch for any number of tensors; held to the reference by its tests
"""
