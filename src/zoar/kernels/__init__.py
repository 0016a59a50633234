"""Directions replayed from their address, and used where they are made: no direction is ever a vector the size of a model.

reference   in plain torch, on any device: what the numbers are
"""
