# SPDX-License-Identifier: Apache-2.0
"""A Skerry ensemble as one diffusers model: experts, and the router that combines their velocities.

It loads from and saves to this folder:

    config.json
    skerry_ensemble.py                    this file
    expert_0/ … expert_{K-1}/             diffusers' DiTTransformer2DModel, or, if captions
                                          condition it, PixArtTransformer2DModel; each usable by
                                          itself
    router/router.safetensors             statistics of the whole dataset
    router/partition-0.safetensors …      statistics of each expert's partition

An expert keeps the number of its partition. If experts were removed from the run, their numbers
are missing; `expert_indices` in config.json lists the experts that are present.

Time runs from 0 (data) to 1000 (noise); the model's output is the velocity, noise − data.
"""

import os
import pathlib

import torch
from diffusers import DiTTransformer2DModel, ModelMixin, PixArtTransformer2DModel
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.modeling_outputs import Transformer2DModelOutput
from huggingface_hub import snapshot_download
from safetensors import safe_open
from safetensors.torch import save_file

EXPERT_CLASSES = {
    each.__name__: each for each in (DiTTransformer2DModel, PixArtTransformer2DModel)
}
ROUTES = ("ancestral", "top1", "top2", "full")
HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "token")
LEAST_NOISE_VARIANCE = 1e-8
FARTHEST = 4.0  # squared distance across the unit sphere, for an expert without centroids
SOURCE = pathlib.Path(__file__).read_text(encoding="utf-8")


def unit(rows):
    return rows / rows.norm(dim=-1, keepdim=True).clamp_min(1e-12)


def read_tensors(path):
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}


class AnalyticRouter:
    """p(expert | x_t, t, label) in closed form from the statistics of the partitions.

    Computes in fp32, on the device of x_t.
    """

    def __init__(self, files, indices):
        """`files`: (tensors, metadata) by file name. `indices` [K]: the experts' numbers."""
        self.files = files
        self.indices = indices
        self.device = torch.device("cpu")
        shared, metadata = files["router.safetensors"]
        features = int(metadata["feature_count"])
        self.mean = shared["mean"]  # [d]
        self.basis = shared["basis"][:, :features]  # [d, features]
        self.variances = shared["variances"][:features]
        self.fine = shared["fine_centroids"]  # [F, features]
        self.owner = shared["table"]  # [F] the expert of each centroid
        self.curves = torch.stack(
            [shared["levels"], shared["curve_gaussian"], shared["curve_feature"]]
        )  # [3, T]
        self.partitions = [files[f"partition-{index}.safetensors"][0] for index in indices]
        counts = torch.stack(
            [p["label_counts"] for p in self.partitions], dim=1
        ).double()  # [classes + 1, K]
        counts[-1] = counts.sum(0)  # the last row is for no label
        counts = torch.where(counts.sum(1, keepdim=True) == 0, counts[-1], counts)
        self.priors = (counts / counts.sum(1, keepdim=True)).float()
        self.captions = self.caption_centroids()

    def caption_centroids(self):
        """Centroids [F, D] of pooled captions, their images of each expert [F, K], their mean [D],
        and how sharply the nearest ones count; None if the dataset has no captions.
        """
        shared, metadata = self.files["router.safetensors"]
        if "caption_centroids" not in shared:
            return None
        centroids, counts = shared["caption_centroids"].double(), shared["caption_counts"].double()
        mean = (counts.sum(1) @ centroids) / counts.sum()
        counts = counts[:, [index for index in self.indices if index < counts.shape[1]]]
        return unit(centroids - mean), counts, mean, float(metadata["caption_sharpness"])

    def shares_of_prompts(self, captions, mask):
        """[B, K] share of each expert in what is drawn by captions [B, L, D] with mask [B, L].

        Each centroid counts its images, less the farther it is from the prompt than the nearest.
        """
        centroids, counts, mean, sharpness = self.captions
        mask = mask.cpu().double()
        tokens = captions.cpu().half().double() * mask[:, :, None]
        cosines = unit(unit(tokens.sum(1)) - mean) @ centroids.t()  # [B, F]
        nearness = (sharpness * (cosines - cosines.amax(1, keepdim=True))).exp()
        shares = nearness @ counts + counts.sum(0) / counts.sum().clamp_min(1)
        return shares / shares.sum(1, keepdim=True)

    @classmethod
    def load(cls, folder, indices):
        return cls(
            {path.name: read_tensors(path) for path in pathlib.Path(folder).glob("*.safetensors")},
            indices,
        )

    def save(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, (tensors, metadata) in self.files.items():
            save_file(
                {key: tensor.contiguous() for key, tensor in tensors.items()},
                folder / name,
                metadata,
            )

    def to(self, device):
        if device != self.device:
            for name in ("mean", "basis", "variances", "fine", "owner", "curves", "priors"):
                setattr(self, name, getattr(self, name).to(device))
            self.partitions = [
                {name: tensor.to(device) for name, tensor in p.items()} for p in self.partitions
            ]
            self.device = device
        return self

    def prior(self, labels):
        """[B, K] share of each expert in a label's samples; a label outside the classes is none."""
        blind = len(self.priors) - 1
        return self.priors[torch.where((labels < 0) | (labels >= blind), blind, labels)]

    def gaussian_view(self, x, t):
        """[B, K] log N(x_t; α μ_k, α² Σ_k + t² I), Woodbury identity, without its constant."""
        alpha, noise = 1 - t, (t * t).clamp_min(LEAST_NOISE_VARIANCE)  # [B, 1]
        scores = []
        for p in self.partitions:
            r = x - alpha * p["mean"]  # [B, d]
            z2 = (r @ p["components"]).square()  # [B, r]
            inside = alpha * alpha * p["variances"] + noise  # [B, r]
            outside = alpha * alpha * p["residual"] + noise  # [B, 1]
            rest = (r.square().sum(1, keepdim=True) - z2.sum(1, keepdim=True)).clamp_min(
                0
            ) / outside
            log_outside = (x.shape[1] - inside.shape[1]) * outside.log()
            scores.append(
                -0.5 * ((z2 / inside + inside.log()).sum(1, keepdim=True) + rest + log_outside)
            )
        return torch.cat(scores, dim=1)

    def feature_view(self, x, t):
        """[B, K] minus the squared distance from the denoised estimate's feature to each expert's
        nearest centroid.
        """
        alpha, noise = 1 - t, (t * t).clamp_min(LEAST_NOISE_VARIANCE)
        gain = alpha * self.variances / (alpha * alpha * self.variances + noise)  # [B, features]
        f = ((x - alpha * self.mean) @ self.basis) * gain
        f = f / f.norm(dim=1, keepdim=True).clamp_min(1e-12)
        distance = (
            f.square().sum(1, keepdim=True) + self.fine.square().sum(1) - 2 * f @ self.fine.t()
        )  # [B, F]
        nearest = []
        for index in self.indices:
            own = distance[:, self.owner == index]
            nearest.append(own.amin(1) if own.shape[1] else torch.full_like(x[:, 0], FARTHEST))
        return -torch.stack(nearest, dim=1)

    def curve(self, row, t):
        """[B, 1] one of the two curves, linear between its levels."""
        levels, values = self.curves[0], self.curves[row]
        if len(levels) == 1:
            return values[0].expand_as(t)
        above = torch.searchsorted(levels, t.contiguous(), right=True).clamp(1, len(levels) - 1)
        part = ((t - levels[above - 1]) / (levels[above] - levels[above - 1])).clamp(0, 1)
        return torch.lerp(values[above - 1], values[above], part)

    @torch.no_grad()
    def log_probabilities(self, x_t, t, labels):
        """[B, K] for x_t [B, C, S, S], t [B] in [0, 1] and labels [B]."""
        self.to(x_t.device)
        x, t = x_t.float().flatten(1), t.float().clamp(0, 1)[:, None]
        evidence = self.curve(1, t) * self.gaussian_view(x, t) + self.curve(
            2, t
        ) * self.feature_view(x, t)
        return torch.log_softmax(evidence + self.prior(labels).log(), dim=1)


class SkerryEnsemble(ModelMixin, ConfigMixin):
    """K experts behind the interface of one of them. Comes from `from_pretrained`.

    With captions that is PixArtTransformer2DModel's, else DiTTransformer2DModel's.

    `route` (see `set_route`) selects the experts that draw an image:
    ancestral  one, sampled at the first step from the shares of the image's label or of its
               prompt, and kept: the exact mixture
    top1, top2 at each step the router's one or two most probable experts, their velocities mixed
               by probability
    full       at each step all of them
    """

    _auto_class = "AutoModel"

    @register_to_config
    def __init__(
        self,
        expert_indices: list,
        in_channels: int,
        out_channels: int,
        sample_size: int,
        num_classes: int,
        route: str = "ancestral",
        expert_class: str = "DiTTransformer2DModel",
    ):
        super().__init__()
        self.experts = torch.nn.ModuleList()
        self.router = None
        self.trajectory = None  # of the ancestral route: (t, labels, experts) of the last step
        self.set_route(route)

    def set_route(self, route):
        if route not in ROUTES:
            raise ValueError(f"expected a route of {', '.join(ROUTES)}, found {route!r}")
        self.register_to_config(route=route)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, subfolder=None, **options):
        path = pretrained_model_name_or_path
        hub = {name: options.pop(name) for name in HUB_OPTIONS if name in options}
        if not os.path.isdir(path):
            path = snapshot_download(
                path, allow_patterns=f"{subfolder}/*" if subfolder else None, **hub
            )
        folder = pathlib.Path(path, subfolder or "")
        config = cls.load_config(folder)
        model = cls.from_config({key: value for key, value in config.items() if key != "auto_map"})
        for index in model.config.expert_indices:
            expert_class = EXPERT_CLASSES[model.config.expert_class]
            model.experts.append(
                expert_class.from_pretrained(folder / f"expert_{index}", **options)
            )
        model.router = AnalyticRouter.load(folder / "router", model.config.expert_indices)
        model.register_to_config(_name_or_path=str(pretrained_model_name_or_path))
        return model.eval()

    def save_pretrained(self, save_directory, variant=None, max_shard_size="10GB", **options):
        folder = pathlib.Path(save_directory)
        self.save_config(folder)
        (folder / "skerry_ensemble.py").write_text(SOURCE, encoding="utf-8")
        for index, expert in zip(self.config.expert_indices, self.experts):
            expert.save_pretrained(
                folder / f"expert_{index}", variant=variant, max_shard_size=max_shard_size
            )
        self.router.save(folder / "router")

    def draw_experts(self, noise, labels, shares=None):
        """[B] the expert of each image, sampled from `shares` [B, K], without them its label's.

        The sample is a function of the image's initial noise, so that it is the same in any batch
        and for the same generator.
        """
        self.router.to(noise.device)
        chance = (noise.cpu().double().flatten(1).sum(1) * 12345.678).remainder(
            1
        )  # [B], on the CPU: not every device has it
        if shares is None:
            shares = self.router.prior(labels)
        edges = shares.cpu().double().cumsum(1)  # [B, K]
        edges = edges / edges[:, -1:]
        return (chance[:, None] >= edges).sum(1).clamp_max(len(self.experts) - 1).to(noise.device)

    def forward(
        self,
        hidden_states,
        timestep,
        class_labels=None,
        experts=None,
        return_dict=True,
        encoder_hidden_states=None,
        encoder_attention_mask=None,
        added_cond_kwargs=None,
    ):
        """Velocity at hidden_states [B, C, S, S] and timestep (a number, or [B]) in [0, 1000].

        class_labels [B]: anything outside the classes means none.
        experts [B]: replaces the route.
        encoder_hidden_states [B, L, D], encoder_attention_mask [B, L]: the captions. Of the routes
        only the ancestral one depends on them. added_cond_kwargs is the stock pipeline's, and not
        read.
        """
        x = hidden_states
        t = torch.as_tensor(timestep, dtype=torch.float32, device=x.device).expand(len(x))
        classes = self.config.num_classes
        if class_labels is None:
            class_labels = torch.full((len(x),), -1, device=x.device)
        labels = torch.where(
            (class_labels < 0) | (class_labels >= classes), -1, class_labels
        )  # [B]
        shares = None
        if encoder_hidden_states is not None and self.router.captions:
            shares = self.router.shares_of_prompts(encoder_hidden_states, encoder_attention_mask)
        weights = self.weights(x, t, labels, experts, shares)  # [B, K]
        rows = torch.where(
            labels < 0, max(1, classes), labels
        )  # the table's last row is for no label
        velocity = torch.zeros_like(x)
        for k, expert in enumerate(self.experts):
            own = weights[:, k].nonzero().squeeze(1)
            if len(own):
                if encoder_hidden_states is None:
                    told = {"class_labels": rows[own]}
                else:
                    told = {
                        "encoder_hidden_states": encoder_hidden_states[own],
                        "encoder_attention_mask": encoder_attention_mask[own],
                        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
                    }
                part = expert(x[own], timestep=t[own], **told).sample
                velocity.index_add_(0, own, part * weights[own, k].to(x.dtype).view(-1, 1, 1, 1))
        return Transformer2DModelOutput(sample=velocity) if return_dict else (velocity,)

    def weights(self, x, t, labels, experts=None, shares=None):
        """[B, K] the share of each expert in the velocity of each image."""
        half = len(x) // 2
        if experts is not None:
            return torch.nn.functional.one_hot(experts.to(x.device), len(self.experts)).float()
        # Guidance asks for every image twice, with its label or prompt and
        # without: the same experts serve both. The stock pipeline puts the null
        # caption first.
        if 2 * half == len(x) and (labels[half:] < 0).all() and torch.equal(x[:half], x[half:]):
            told = None if shares is None else shares[half:]
            return self.routed(x[:half], t[:half], labels[:half], told).repeat(2, 1)
        return self.routed(x, t, labels, shares)

    def routed(self, x, t, labels, shares=None):
        if self.config.route == "ancestral":
            return self.weights(x, t, labels, self.kept_experts(x, t, labels, shares))
        log_p = self.router.log_probabilities(x, t / 1000, labels)
        keep = min(
            {"top1": 1, "top2": 2}.get(self.config.route, len(self.experts)), len(self.experts)
        )
        best, index = log_p.topk(keep, dim=1)
        return torch.full_like(log_p, -torch.inf).scatter(1, index, best).softmax(1)

    def kept_experts(self, x, t, labels, shares):
        """The experts of the trajectory that this step continues, or new ones.

        Time only falls within a trajectory.
        """
        last = self.trajectory
        if last is None or float(t[0]) >= last[0] or not torch.equal(labels, last[1]):
            experts = self.draw_experts(x, labels, shares)
        else:
            experts = last[2]
        self.trajectory = (float(t[0]), labels, experts)
        return experts


# diffusers copies this file into a package of its own. model_index.json is to
# name the file that lies beside the weights.
SkerryEnsemble.__module__ = "skerry_ensemble"
