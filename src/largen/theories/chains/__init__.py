"""A network as a chain of affine maps, and its constants in a run, for several limits.

======================  ================================================================
``chain``               the sequence of affine maps, residual branches included
``receptive_fields``    the positions of the previous layer that an affine map reads
``normalized``          activations of normalised layers, and gradients through them
``constants``           σ and ρ of an affine map at infinite width
``problem``             the mean-field problem of a run: fields, learning rates and scales
``decay``               homogeneous networks under weight decay where features stand still
======================  ================================================================
"""
