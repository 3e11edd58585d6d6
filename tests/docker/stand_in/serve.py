"""Run llama.cpp's own server on port 8000 until it is stopped."""

import signal

import xllamacpp

ENDS = {signal.SIGTERM, signal.SIGINT}
# Block the signals before the server's threads start, so that none of them takes one.
signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)

params = xllamacpp.CommonParams()
params.model.path = "/srv/model.gguf"
params.hostnames = ["0.0.0.0"]
params.port = 8000
params.n_ctx = 8192
params.n_parallel = 1
# A second thread would wait for the first whenever the loop trains on the same machine.
params.cpuparams.n_threads = 1
params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
signal.sigwait(ENDS)
