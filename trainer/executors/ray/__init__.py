"""Trials on other machines: a lane is a Ray actor that hosts this product's own executor there.

What crosses between the machines is text and bytes: JSON that both sides check as from a stranger,
and pieces of files. Ray is loaded by :mod:`trainer.executors.ray.connection` alone, and only once
somebody asks for a cluster.
"""
