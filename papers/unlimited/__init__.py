"""The paper on ntk-unlimited (arXiv 2508.11522): first-order corrections beside samples."""
