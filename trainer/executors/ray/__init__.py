"""Run trials on other machines: a lane is a Ray actor that hosts this product's executor there.

The machines exchange text and bytes: JSON, which both sides treat as untrusted, and pieces of
files. Only :mod:`trainer.executors.ray.connection` loads Ray, once somebody asks for a cluster.
"""
