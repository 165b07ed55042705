"""Reads the runs of causal-attention: config, metrics, summary and weights, and the page in a notebook.

    import causal_attention

    run = causal_attention.run("runs/repeat-decoder")
    run.config["model"]["heads"]    # every key, as used
    run.metrics[-1]["loss"]         # the rows of metrics.csv
    run.metrics.frame()             # the same as a pandas frame
    run.weights                     # NumPy arrays, by name
    run                             # in a notebook: the page of the run

`python -m causal_attention` runs the program.
"""

from causal_attention._run import Metrics, Run, RunError, run

__all__ = ["Metrics", "Run", "RunError", "run"]
