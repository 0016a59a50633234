"""One thread: these problems are small, and oversubscribed threads are many times slower."""

import torch

torch.set_num_threads(1)
