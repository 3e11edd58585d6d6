"""One rank on each of several hosts: how they meet, train, measure their link, and lose each other.

The same command is given on every host. The first of the list keeps torch's store
(:class:`torch.distributed.TCPStore`, what its rendezvous by ``tcp://`` stands on); the others come
to it. Nobody logs in anywhere, and the store listens on the first host's address among the hosts
alone, only while the command runs; whoever reaches that port can read and disturb what is said
there, so the link belongs to the hosts.
"""
