"""The random matrices of the sweep: Gaussian at initialisation, and changed by training.

======================  ================================================================
``by_directions``       matrices represented by their products with directions, never stored
``by_neurons``          matrices whose random numbers belong to neurons
``fresh_vectors``       the Gaussian vectors that are their products with new directions
``row_buffers``         products with the filled rows of buffers of fixed size
``dense``               matrices that are stored
======================  ================================================================
"""
