"""Networks of finite width in training: large steps, and the next order of the kernel limit."""
