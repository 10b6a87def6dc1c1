"""A network as a chain of affine maps, and what a run asks of it: shared by limits of chains.

======================  ================================================================
``chain``               how affine maps follow one another, past residual branches
``receptive_fields``    which positions of the layer before it a map reads
``problem``             what the run says of the network: fields, rates and scales
======================  ================================================================
"""
