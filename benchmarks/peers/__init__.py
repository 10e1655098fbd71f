"""Peers: programs that run in processes of their own, with an interpreter that need not know tensorlang."""

from benchmarks.peers.process import Peer

__all__ = ["Peer"]
