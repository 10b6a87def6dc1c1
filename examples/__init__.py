"""Programs that use largen, and the models and tasks that several of them share."""
