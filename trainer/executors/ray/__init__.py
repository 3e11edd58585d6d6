"""Run trials on other machines: a lane is a Ray actor that hosts this product's executor there.

Only :mod:`trainer.executors.ray.connection` loads Ray, once somebody asks for a cluster.
"""
