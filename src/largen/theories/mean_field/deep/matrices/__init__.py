"""The random matrices of the sweep: Gaussian, and changed by training.

======================  ================================================================
``by_directions``       matrices that are known by what they answered, never stored
``fresh_vectors``       the Gaussian vectors that they answer to a direction not seen before
``row_buffers``         products with the filled rows of buffers of fixed size
``dense``               matrices that are stored instead
======================  ================================================================
"""
