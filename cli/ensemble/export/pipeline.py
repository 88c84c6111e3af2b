# SPDX-License-Identifier: Apache-2.0
"""Draws images from a Skerry ensemble that was trained on pixels.

from diffusers import DiffusionPipeline
pipe = DiffusionPipeline.from_pretrained(FOLDER, trust_remote_code=True)
pipe(["disc"] * 4, guidance_scale=3).images[0].save("disc.png")
"""

import json
import pathlib

import torch
from diffusers import DiffusionPipeline, ImagePipelineOutput, ModelMixin, SchedulerMixin
from diffusers.utils.torch_utils import randn_tensor

SOURCE = pathlib.Path(__file__).read_text(encoding="utf-8")


class SkerryEnsemblePipeline(DiffusionPipeline):
    model_cpu_offload_seq = "transformer"

    def __init__(
        self, transformer: ModelMixin, scheduler: SchedulerMixin, id2label: dict | None = None
    ):
        super().__init__()
        self.register_modules(transformer=transformer, scheduler=scheduler)
        self.register_to_config(id2label=id2label)
        self.labels = {name: int(number) for number, name in (id2label or {}).items()}

    @torch.no_grad()
    def __call__(
        self,
        class_labels,
        num_inference_steps=50,
        guidance_scale=1.0,
        solver="euler",
        route=None,
        generator=None,
        latents=None,
        experts=None,
        output_type="pil",
        return_dict=True,
    ):
        """One image for each of class_labels: a class by name or number, or None.

        guidance_scale: v = v_none + guidance_scale · (v_label − v_none); 1: plain.
        solver: euler; heun (twice the work of a step, far smaller error); or scheduler, the one
            in scheduler/.
        route: ancestral, top1, top2 or full; None: as the model is set.
        latents: the noise to start from, [B, C, S, S].
        experts: a number for each image, instead of a route.
        output_type: pil; np or pt in [0, 1]; latent as computed, in [−1, 1].
        """
        model = self.transformer
        if route is not None:
            model.set_route(route)
        labels = torch.tensor(
            [self.number_of(label) for label in class_labels], device=self._execution_device
        )
        size = model.config.sample_size
        if latents is None:
            latents = randn_tensor(
                (len(labels), model.config.in_channels, size, size),
                generator,
                self._execution_device,
                torch.float32,
            )
        x = latents.to(self._execution_device, torch.float32)
        if experts is not None:
            experts = torch.as_tensor(experts, device=x.device)
        elif model.config.route == "ancestral":
            experts = model.draw_experts(x, labels)

        def velocity(x, t):
            if guidance_scale == 1 or not model.config.num_classes:
                return model(x.to(model.dtype), 1000 * t, labels, experts).sample.float()
            twice = None if experts is None else experts.repeat(2)
            both = model(
                x.to(model.dtype).repeat(2, 1, 1, 1),
                1000 * t,
                torch.cat([labels, torch.full_like(labels, -1)]),
                twice,
            ).sample.float()
            labelled, none = both.chunk(2)
            return none + (labelled - none) * guidance_scale

        if solver == "scheduler":
            self.scheduler.set_timesteps(num_inference_steps, device=x.device)
            for t in self.progress_bar(self.scheduler.timesteps):
                x = self.scheduler.step(velocity(x, t / 1000), t, x).prev_sample
        else:
            x = self.integrate(solver, num_inference_steps, x, velocity)
        self.maybe_free_model_hooks()
        images = self.as_output(x, output_type)
        return ImagePipelineOutput(images=images) if return_dict else (images,)

    def number_of(self, label):
        """−1 for no label."""
        number = (
            -1
            if label is None
            else self.labels.get(label) if isinstance(label, str) else int(label)
        )
        if number is None or not -1 <= number < self.transformer.config.num_classes:
            raise ValueError(
                f"expected a class of {list(self.labels)}, its number, or None, found {label!r}"
            )
        return number

    def integrate(self, solver, steps, x, velocity):
        """Solves dx/dt = velocity from t = 1 to 0 in equal steps.

        Heun's last step is Euler's, because models predict poorly at t = 0.
        """
        if solver not in ("euler", "heun"):
            raise ValueError(f"expected a solver euler, heun or scheduler, found {solver!r}")
        for i in self.progress_bar(range(steps)):
            t, following = 1 - i / steps, 1 - (i + 1) / steps
            v = velocity(x, t)
            euler = x + v * (following - t)
            last = i + 1 == steps
            x = (
                euler
                if solver == "euler" or last
                else x + (v + velocity(euler, following)) * ((following - t) / 2)
            )
        return x

    def as_output(self, x, output_type):
        if output_type == "latent":
            return x
        images = (x / 2 + 0.5).clamp(0, 1)
        if output_type == "pt":
            return images
        images = images.cpu().permute(0, 2, 3, 1).numpy()
        return self.numpy_to_pil(images) if output_type == "pil" else images

    def save_pretrained(self, save_directory, **options):
        super().save_pretrained(save_directory, **options)
        folder = pathlib.Path(save_directory)
        (folder / "pipeline.py").write_text(SOURCE, encoding="utf-8")
        index = json.loads((folder / "model_index.json").read_text())
        index["_class_name"] = ["pipeline", type(self).__name__]
        if self.config.id2label:
            index["id2label"] = self.config.id2label
        (folder / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")
