"""What all mean-field theories have in common: the step of training, and replicates.

======================  ================================================================
``descent``             a step of gradient descent
``statistics``          mean, standard error, and interval of few replicates
``parallel``            replicates that are computed at the same time
``replicates``          the loop over replicates, until their mean is as exact as wanted
``marked_files``        files that contain marks of their run and options
``checkpoint``          finished replicates in a file
======================  ================================================================
"""
