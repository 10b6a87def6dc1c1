"""The solution and its error, estimated from independent replicates.

=======================  ================================================================
``settings``             numbers of particles and replicates, tolerances, precision
``control_variate``      the lazy limit as a control variate of replicates
``truncation``           the effect of directions below the tolerance
``width_extrapolation``  two widths, extrapolated in 1/N
``averages``             means over replicates, and their errors
``memory``               the memory that replicates take
``replicates``           what replicates of the sweep are, and their number
``by_layers``            shift and variance at finite width, by the layers that cause them
=======================  ================================================================
"""
