"""The solution and its error, estimated from independent replicates.

=======================  ================================================================
``settings``             numbers of particles and replicates, tolerances, precision
``control_variate``      what the lazy limit knows of the error of a replicate
``truncation``           what directions that are too small to be kept would change
``width_extrapolation``  two widths, extrapolated in 1/N
``averages``             means over replicates, and their errors
``memory``               how much memory replicates take
``parallel``             replicates that are computed at the same time
``replicates``           independent solutions, and their number
=======================  ================================================================
"""
