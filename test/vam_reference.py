"""The action head written out plainly from the paper's appendix and openpi's Gemma: float64, a full mask, loops.

Nothing of the package is imported; weights come in as a dictionary of tensors. One sample, no batch.
"""

import math

import torch


def prefix_lm_mask(video: int, actions: int) -> torch.Tensor:
    """openpi's rule: blocks [0]*V + [1] + [1] + [0]*(A-1); query i sees key j when cumsum[j] <= cumsum[i]."""
    blocks = torch.tensor([0] * video + [1] + [1] + [0] * (actions - 1)).cumsum(0)
    return blocks[None, :] <= blocks[:, None]


def silu(x):
    return x / (1 + torch.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sincos(level: float, width: int) -> torch.Tensor:
    half = width // 2
    periods = [4e-3 * (4.0 / 4e-3) ** (i / (half - 1)) for i in range(half)]
    angles = torch.tensor([level * 2 * math.pi / period for period in periods], dtype=torch.float64)
    return torch.cat([torch.sin(angles), torch.cos(angles)])


def rotate(x: torch.Tensor, position: int) -> torch.Tensor:
    """(head_dim,) at one position."""
    half = len(x) // 2
    out = torch.empty_like(x)
    for i in range(half):
        angle = position / 10_000 ** (2 * i / len(x))
        out[i] = x[i] * math.cos(angle) - x[half + i] * math.sin(angle)
        out[half + i] = x[half + i] * math.cos(angle) + x[i] * math.sin(angle)
    return out


class ReferenceHead:
    """``weights``: state dict of a head; ``cached``: whether the video rows go without the action timestep."""

    def __init__(self, weights, layers: int, heads: int, head_dim: int, group: int, cached: bool):
        self.w = {name: tensor.double() for name, tensor in weights.items()}
        self.layers, self.heads, self.head_dim, self.group, self.cached = layers, heads, head_dim, group, cached

    def linear(self, x, name):
        y = x @ self.w[f"{name}.weight"].T
        return y + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else y

    def video_tokens(self, features, sigma: float):
        """(T, rows, columns, D) -> (V, width)."""
        frames, rows, columns, _ = features.shape
        g, tokens = self.group, []
        for t in range(frames):
            for r in range(0, rows, g):
                for c in range(0, columns, g):
                    neighbours = [features[t, r + i, c + j] for i in range(g) for j in range(g)]
                    tokens.append(self.linear(torch.cat(neighbours), "video_proj"))
        x = torch.stack(tokens)
        width = x.shape[1]
        both = self.linear(silu(self.linear(sincos(sigma, 256), "noise_level.hidden")), "noise_level.out")
        shift, scale = both[:width], both[width:]
        centred = x - x.mean(1, keepdim=True)
        normed = centred / torch.sqrt((centred**2).mean(1, keepdim=True) + 1e-6)
        return normed * (1 + scale) + shift

    def norm(self, x, name, condition, video: int):
        """Rows normalised, and the gate of each row."""
        normed = x / torch.sqrt((x**2).mean(1, keepdim=True) + 1e-6)
        scale, shift, gate = self.linear(condition, f"{name}.modulation").chunk(3)
        out, gates = normed * (1 + scale) + shift, gate.expand_as(x).clone()
        if self.cached and video:
            plain = self.w.get(f"{name}.plain_scale", torch.zeros(x.shape[1], dtype=x.dtype))
            out[:video], gates[:video] = normed[:video] * (1 + plain), 1.0
        return out, gates

    def velocity(self, actions, time: float, state, features, sigma: float, gap: int = 0):
        """((A, pad) velocity, [layer] attention probabilities (heads, N, N)); ``gap`` positions follow the video."""
        pad = self.w["state_proj.weight"].shape[1]
        video = self.video_tokens(features.double(), sigma)
        padded = torch.cat([state.double(), torch.zeros(pad - len(state), dtype=torch.float64)])
        x = torch.cat([video, self.linear(padded, "state_proj")[None], self.linear(actions.double(), "action_in")])
        condition = sincos(time, x.shape[1])
        condition = silu(self.linear(silu(self.linear(condition, "time_in")), "time_out"))
        mask = prefix_lm_mask(len(video), len(actions))
        place = [n if n < len(video) else n + gap for n in range(len(x))]
        attention = []
        for index in range(self.layers):
            name = f"layers.{index}"
            normed, gates = self.norm(x, f"{name}.attention_norm", condition, len(video))
            q = self.linear(normed, f"{name}.q").view(len(x), self.heads, self.head_dim)
            k, v = self.linear(normed, f"{name}.k"), self.linear(normed, f"{name}.v")
            k = torch.stack([rotate(row, n) for n, row in zip(place, k, strict=True)])
            outputs, probabilities = [], []
            for head in range(self.heads):
                rotated = torch.stack([rotate(row, n) for n, row in zip(place, q[:, head], strict=True)])
                scores = rotated @ k.T / math.sqrt(self.head_dim)
                p = torch.softmax(scores.masked_fill(~mask, -math.inf), dim=1)
                probabilities.append(p)
                outputs.append(p @ v)
            attention.append(torch.stack(probabilities))
            x = x + gates * self.linear(torch.cat(outputs, dim=1), f"{name}.o")
            normed, gates = self.norm(x, f"{name}.mlp_norm", condition, len(video))
            hidden = gelu_tanh(self.linear(normed, f"{name}.gate")) * self.linear(normed, f"{name}.up")
            x = x + gates * self.linear(hidden, f"{name}.down")
        normed, _ = self.norm(x[len(video) + 1 :], "final_norm", condition, 0)
        return self.linear(normed, "action_out"), attention

    def frame_mass(self, attention, frames: int, actions: int):
        """(frames,) attention mass of the action queries on each latent frame, heads and queries summed."""
        per_key = attention[:, -actions:].sum(dim=(0, 1))
        tokens = (attention.shape[-1] - actions - 1) // frames
        return torch.stack([per_key[t * tokens : (t + 1) * tokens].sum() for t in range(frames)])
