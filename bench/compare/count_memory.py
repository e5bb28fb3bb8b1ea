# SPDX-License-Identifier: Apache-2.0
"""Bytes of all storages that a program's operators make, from their making to their end."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

DEVICE = "cpu"  # pretended as well; on a pretended cuda, autograd asks for a true one


class Count(TorchDispatchMode):
    """Live bytes of all storages that operators make on the device."""

    def __init__(self):
        super().__init__()
        self.live, self.peak, self.known = 0, 0, weakref.WeakKeyDictionary()

    def track(self, tensor):
        if tensor.device.type != DEVICE:
            return
        storage = tensor.untyped_storage()
        if storage in self.known:
            return
        size = (storage.nbytes() + 511) // 512 * 512  # as the allocator rounds
        self.known[storage] = size
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self.forget, size)

    def forget(self, size):
        self.live -= size

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_iter(out):
            if isinstance(leaf, torch.Tensor):
                self.track(leaf)
        return out

    def reset_peak(self):
        self.peak = self.live
