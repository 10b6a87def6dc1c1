"""One causal sweep through training: a network of random matrices, step by step.

======================  ================================================================
``patches``             from features to the patches that a map reads, and back
``layer_widths``        the numbers of neurons of layers of unequal widths
``state``               the state of the network during training, and its constants
``start``               the state at initialisation
``initial_kernels``     kernels at initialisation
``variance_reduction``  initialisation with the exact averages of the limit
``causal_sweep``        one step of training, and the compiled loop over steps
``langevin``            the noise of Langevin dynamics
``schedule``            the steps of a run; gradient flow from smaller and smaller ones
``smoothness``          which activations are smooth
``kernel_records``      Φ, G and the tangent kernel at chosen times
``advance``             a sweep from the first to the last step, with stops in between
``linear``              linear networks: closed equations
======================  ================================================================
"""
