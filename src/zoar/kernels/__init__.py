"""Directions replayed from their address, and used where they are made: no direction is ever a vector the size of a model.

reference   in plain torch, on any device: what the numbers are
triton      the same for CUDA in one launch for any number of tensors; held to the reference by its tests
programs    what a GPU runs for each tile
pieces      what programs are made of
tiles       which part of which tensor each of their programs works on
digits      coefficients as whole numbers, which the kernels add up exactly
"""
