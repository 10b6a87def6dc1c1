"""One causal sweep through training: the network of random matrices, step after step.

======================  ================================================================
``patches``             from features to what a map reads, and back
``layer_widths``        how many neurons layers of unequal widths have
``state``               what changes while the network trains, and what stands still
``start``               the state at initialisation
``initial_kernels``     kernels at initialisation
``variance_reduction``  initialisation with all that is exact in the limit made exact
``causal_sweep``        one step of training, and the compiled loop over steps
``langevin``            the noise of Langevin dynamics
``schedule``            the steps of a run; gradient flow from smaller and smaller ones
``smoothness``          which activations are smooth
``kernel_records``      Φ, G and the tangent kernel at chosen times
``listeners``           who hears of its progress, and who keeps its state
``advance``             a sweep from the first to the last step, with stops in between
``linear``              linear networks: closed equations
======================  ================================================================
"""
