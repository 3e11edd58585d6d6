"""Run one rank on each of several hosts: rendezvous, train, measure the link, and detect lost
hosts.

The user starts the same command on every host. The first host of the list runs torch's store
(:class:`torch.distributed.TCPStore`, as in its ``tcp://`` rendezvous), and the others connect to
it. Nobody logs in anywhere. The store listens only on the first host's address among the hosts, and
only while the command runs. Whoever reaches that port can read and disturb its traffic, so the link
must belong to the hosts.
"""
