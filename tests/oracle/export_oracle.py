#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads the output of `ensemble fetch` with diffusers from PyPI, and compares with the engine.

  usage: export_oracle.py EXPORT_TRANSCRIPT_PROGRAM [unittest arguments]
         export_oracle.py EXPORT_TRANSCRIPT_PROGRAM --measure     largest differences, as JSON

Exit status 77, which ctest counts as skipped, if diffusers is not installed: ./dev setup installs
it.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRATCH = tempfile.TemporaryDirectory(prefix="skerry-export-")
ROOT = pathlib.Path(
    os.environ.setdefault("SKERRY_EXPORT_ROOT", SCRATCH.name)
)  # a child works in its parent's
os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_HOME=SCRATCH.name,
    HF_MODULES_CACHE=SCRATCH.name + "/modules",
    OMP_NUM_THREADS="1",
)

try:
    import torch
    from diffusers import (
        AutoencoderKL,
        AutoModel,
        DiffusionPipeline,
        DiTPipeline,
        DiTTransformer2DModel,
        FlowMatchEulerDiscreteScheduler,
        PixArtSigmaPipeline,
        PixArtTransformer2DModel,
        UniPCMultistepScheduler,
    )
    from diffusers.utils import is_transformers_available
    from safetensors.torch import load_file
except ImportError as missing:
    print(f"skipped: {missing}; ./dev setup installs diffusers beside LibTorch")
    sys.exit(77)

torch.set_num_threads(1)
NAMES = ("pixels", "latents", "plain")
ROUTES = ("ancestral", "top1", "top2", "full")
FORWARD_LIMIT = 1e-5
ROUTER_LIMIT = 1e-4
TRAJECTORY_LIMIT = 1e-4


def transcript(name):
    return load_file(ROOT / f"{name}.safetensors")


def load_expert(name, k, **options):
    return DiTTransformer2DModel.from_pretrained(ROOT / name / f"expert_{k}", **options)


def load_pipeline(folder):
    """Ours; a folder of latents names the stock one by itself."""
    named = {"custom_pipeline": str(folder / "pipeline.py")} if folder.name == "latents" else {}
    pipe = DiffusionPipeline.from_pretrained(folder, trust_remote_code=True, **named)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def small_vae(channels=4):
    torch.manual_seed(1)
    return AutoencoderKL(
        latent_channels=channels,
        block_out_channels=(8, 8),
        norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        scaling_factor=0.5,
    ).eval()


def distance(a, b):
    return (a - b).abs().max().item()


@torch.no_grad()
def expert_error(name):
    """The largest difference of one forward pass, over experts, times and labels."""
    ours, worst = transcript(name), 0.0
    for k in range(experts_of(ours)):
        expert = load_expert(name, k)
        null = expert.config.num_embeds_ada_norm
        labels = torch.where(ours["labels"] < 0, null, ours["labels"])
        theirs = expert(ours["noise"], timestep=1000 * ours["t"], class_labels=labels).sample
        worst = max(worst, distance(theirs, ours[f"velocity/{k}"]))
    return worst


def experts_of(ours):
    return sum(key.startswith("velocity/") for key in ours)


def router_error(name):
    """The largest difference of a probability. Zero probabilities must agree."""
    ours, router, worst = transcript(name), load_pipeline(ROOT / name).transformer.router, 0.0
    for key, expected in ours.items():
        if key.startswith("router/"):
            t = torch.full((len(ours["noise"]),), float(key.split("/")[1]))
            found = router.log_probabilities(ours["noise"], t, ours["labels"])
            if not torch.equal(expected.isinf(), found.isinf()):
                return float("inf")
            worst = max(worst, distance(found.exp(), expected.exp()))
    return worst


def trajectory_error(name):
    """The largest difference of an image in [-1, 1] after a whole trajectory.

    Over routes, solvers and guidance.
    """
    ours, pipe, worst = transcript(name), load_pipeline(ROOT / name), 0.0
    for key, expected in ours.items():
        if key.startswith("sample/") and key.count("/") == 4:
            _, route, solver, guidance, steps = key.split("/")
            images = pipe(
                ours[key + "/labels"].tolist(),
                int(steps),
                float(guidance),
                solver,
                route,
                latents=ours["noise"],
                experts=ours.get(key + "/experts"),
                output_type="latent",
            ).images
            worst = max(worst, distance(images, expected))
    return worst


class Experts(unittest.TestCase):
    def test_an_expert_computes_in_stock_diffusers_what_the_engine_does(self):
        for name in NAMES:
            self.assertLess(expert_error(name), FORWARD_LIMIT, name)

    def test_no_key_is_missing_or_left_over(self):
        _, info = load_expert("pixels", 0, output_loading_info=True)
        self.assertEqual(
            [], [*info["missing_keys"], *info["unexpected_keys"], *info["mismatched_keys"]]
        )

    def test_norm_eps_is_that_of_dit(self):
        for (
            name
        ) in NAMES:  # the default of diffusers moves an output by less than the limit could show
            self.assertEqual(1e-6, load_expert(name, 0).config.norm_eps)

    def test_shards_are_the_same_expert(self):
        folder = ROOT / "pixels-shards"
        self.assertGreater(len(list(folder.glob("diffusion_pytorch_model-*-of-*.safetensors"))), 2)
        whole, sharded = (
            load_expert("pixels", 0).state_dict(),
            DiTTransformer2DModel.from_pretrained(folder).state_dict(),
        )
        self.assertEqual(
            [], [name for name in whole if not torch.equal(whole[name], sharded[name])]
        )

    def test_raw_weights_are_the_variant_raw(self):
        averaged, raw = (
            load_expert("pixels", 1, **v).state_dict() for v in ({}, {"variant": "raw"})
        )
        checkpoint = load_file(ROOT / "pixels-parts" / "checkpoint-1")
        for kind, state in (("ema", averaged), ("raw", raw)):
            self.assertTrue(
                torch.equal(state["proj_out_2.weight"], checkpoint[f"{kind}/proj_out_2.weight"])
            )
        self.assertFalse(torch.equal(averaged["proj_out_2.weight"], raw["proj_out_2.weight"]))


class Ensemble(unittest.TestCase):
    def test_the_router_gives_the_engines_probabilities(self):
        for name in NAMES:
            self.assertLess(router_error(name), ROUTER_LIMIT, name)

    def test_whole_trajectories_are_the_engines(self):
        for name in NAMES:
            self.assertLess(trajectory_error(name), TRAJECTORY_LIMIT, name)

    def test_it_loads_as_one_model_by_auto_map(self):
        model = AutoModel.from_pretrained(
            str(ROOT / "pixels" / "transformer"), trust_remote_code=True
        )
        self.assertEqual(3, len(model.experts))

    def test_it_does_not_run_code_that_is_not_trusted(self):
        with self.assertRaisesRegex(ValueError, "trust_remote_code"):
            DiffusionPipeline.from_pretrained(ROOT / "pixels")

    def test_the_ancestral_draw_follows_the_shares_of_the_label(self):
        model = load_pipeline(ROOT / "pixels").transformer
        noise = torch.randn(4000, 3, 12, 12, generator=torch.manual_seed(3))
        labels = torch.full((4000,), 1)
        drawn = model.draw_experts(noise, labels)
        shares = drawn.bincount(minlength=3) / 4000
        self.assertLess(distance(shares, model.router.prior(labels[:1])[0]), 0.03)
        self.assertEqual(0, shares[1])  # this expert never saw the label
        self.assertTrue(
            torch.equal(drawn[1000:1010], model.draw_experts(noise[1000:1010], labels[:10]))
        )

    def test_an_ancestral_expert_is_kept_through_a_trajectory_only(self):
        model = load_pipeline(ROOT / "pixels").transformer
        noise = torch.randn(8, 3, 12, 12, generator=torch.manual_seed(4))
        labels = torch.arange(8) % 5

        def weights(x, t):
            return model.weights(x, torch.full((8,), float(t)), labels)

        first = weights(noise, 1000)
        self.assertTrue(torch.equal(first, weights(0.5 * noise, 500)))
        self.assertFalse(torch.equal(first, weights(-noise, 1000)))

    def test_guidance_routes_both_branches_by_the_label(self):
        model = load_pipeline(ROOT / "pixels").transformer
        ours = transcript("pixels")
        model.set_route("top1")
        x, labels = ours["noise"], torch.arange(7) % 5
        both = model.weights(
            torch.cat([x, x]), torch.full((14,), 900.0), torch.cat([labels, torch.full((7,), -1)])
        )
        self.assertTrue(torch.equal(both[:7], both[7:]))
        self.assertTrue(torch.equal(both[:7], model.weights(x, torch.full((7,), 900.0), labels)))

    def test_pictures_come_by_class_name(self):
        pipe = load_pipeline(ROOT / "pixels")
        images = pipe(
            ["class 2", 3, None], num_inference_steps=2, generator=torch.manual_seed(0)
        ).images
        self.assertEqual([(12, 12)] * 3, [image.size for image in images])
        again = pipe(
            ["class 2"], num_inference_steps=2, generator=torch.manual_seed(0), output_type="pt"
        ).images
        self.assertEqual((1, 3, 12, 12), tuple(again.shape))
        for wrong in ("class 9", 5, -2):
            with self.assertRaisesRegex(ValueError, "expected a class"):
                pipe([wrong])


class StockPipeline(unittest.TestCase):
    """DiTPipeline with 4-channel latents, a small random VAE and the scheduler of the folder."""

    def setUp(self):
        self.pipe = DiTPipeline.from_pretrained(
            ROOT / "latents", vae=small_vae(), trust_remote_code=True
        )
        self.pipe.set_progress_bar_config(disable=True)

    def draw(self, pipe, route, scale=2.0):
        pipe.transformer.set_route(route)
        return pipe(
            [0, 1, 2, 3],
            guidance_scale=scale,
            generator=torch.manual_seed(7),
            num_inference_steps=20,
            output_type="pt",
        ).images

    def test_every_route_draws_what_our_pipeline_draws_with_this_scheduler(self):
        self.assertIs(DiTPipeline, type(self.pipe))
        self.assertIsInstance(self.pipe.scheduler, UniPCMultistepScheduler)
        ours = load_pipeline(ROOT / "latents")
        for route in ROUTES:
            for scale in (1.0, 2.0):
                latents = ours(
                    [0, 1, 2, 3],
                    20,
                    scale,
                    "scheduler",
                    route,
                    generator=torch.manual_seed(7),
                    output_type="latent",
                ).images
                with torch.no_grad():
                    images = (self.pipe.vae.decode(latents / 0.5).sample / 2 + 0.5).clamp(0, 1)
                self.assertLess(
                    distance(images, self.draw(self.pipe, route, scale)),
                    TRAJECTORY_LIMIT,
                    (route, scale),
                )

    def test_its_scheduler_ends_where_the_engine_ends(self):
        ours = transcript("latents")
        pipe = load_pipeline(ROOT / "latents")
        ended = pipe(
            ours["exact/labels"].tolist(),
            100,
            2.0,
            "scheduler",
            "full",
            latents=ours["noise"],
            output_type="latent",
        ).images
        self.assertLess(distance(ended, ours["exact"]), 0.02 * ours["exact"].abs().max().item())

    def test_it_is_the_same_after_save_and_reload_in_another_process(self):
        folder = ROOT / "saved"
        self.pipe.save_pretrained(folder)
        before = {route: self.draw(self.pipe, route) for route in ROUTES}
        after = self.in_another_process("--draw", folder)
        for route in ROUTES:
            self.assertTrue(torch.equal(before[route], after[route]), route)

    def test_our_pipeline_is_the_same_after_save_and_reload_in_another_process(self):
        ours, folder = transcript("pixels"), ROOT / "saved-pixels"
        pipe = load_pipeline(ROOT / "pixels")
        pipe.transformer.set_route("top2")
        pipe.save_pretrained(folder)
        before = pipe([0, 1, 2, 3, 4, 0, 1], 4, latents=ours["noise"], output_type="pt").images
        self.assertTrue(torch.equal(before, self.in_another_process("--redraw", folder)["images"]))

    @staticmethod
    def in_another_process(what, folder):
        out = ROOT / "drawn.pt"
        subprocess.run([sys.executable, "-B", __file__, what, folder, out], check=True)
        return torch.load(out)


class FlowEuler(FlowMatchEulerDiscreteScheduler):
    """The stock pipeline asks every scheduler for two things that Euler's lacks."""

    init_noise_sigma = 1.0

    def scale_model_input(self, sample, timestep):
        return sample


@unittest.skipUnless(is_transformers_available(), "PixArtSigmaPipeline needs transformers")
class Captions(unittest.TestCase):
    """PixArtSigmaPipeline with embeddings of prompts in place of a text encoder."""

    STEPS = 12

    def setUp(self):
        self.ours = transcript("captions")

    def expert(self, k, **options):
        return PixArtTransformer2DModel.from_pretrained(
            ROOT / "captions" / f"expert_{k}", **options
        )

    def pipe(self, transformer=None):
        """Of the whole folder, or of its scheduler and one expert."""
        parts = {"vae": small_vae(), "text_encoder": None, "tokenizer": None}
        if transformer is None:
            pipe = PixArtSigmaPipeline.from_pretrained(
                ROOT / "captions", trust_remote_code=True, **parts
            )
        else:
            scheduler = UniPCMultistepScheduler.from_pretrained(ROOT / "captions/scheduler")
            pipe = PixArtSigmaPipeline(transformer=transformer, scheduler=scheduler, **parts)
        pipe.set_progress_bar_config(disable=True)
        return pipe

    def draw(self, pipe, **schedule):
        """Latents, from our noise and prompts, with guidance towards the null caption."""
        embeddings, mask, null = (self.ours[name] for name in ("embeddings", "mask", "null"))
        nulls, null_mask = torch.zeros_like(embeddings), torch.zeros_like(mask)
        nulls[:, : len(null)], null_mask[:, : len(null)] = null, 1
        return pipe(
            negative_prompt=None,
            prompt_embeds=embeddings.half().float(),
            prompt_attention_mask=mask,
            negative_prompt_embeds=nulls.half().float(),
            negative_prompt_attention_mask=null_mask,
            guidance_scale=2.0,
            latents=self.ours["noise"],
            height=16,
            width=16,
            use_resolution_binning=False,
            output_type="latent",
            **schedule,
        ).images

    def by_euler(self, pipe):
        pipe.scheduler = FlowEuler()
        return self.draw(pipe, sigmas=[1 - i / self.STEPS for i in range(self.STEPS)])

    def test_an_expert_computes_in_stock_diffusers_what_the_engine_does(self):
        for k in range(experts_of(self.ours)):
            expert, info = self.expert(k, output_loading_info=True)
            self.assertEqual(
                [], [*info["missing_keys"], *info["unexpected_keys"], *info["mismatched_keys"]]
            )
            self.assertEqual(1e-6, expert.config.norm_eps)
            with torch.no_grad():
                theirs = expert(
                    self.ours["noise"],
                    encoder_hidden_states=self.ours["embeddings"],
                    encoder_attention_mask=self.ours["mask"],
                    timestep=1000 * self.ours["t"],
                    added_cond_kwargs={"resolution": None, "aspect_ratio": None},
                ).sample
            self.assertLess(distance(theirs, self.ours[f"velocity/{k}"]), FORWARD_LIMIT)

    def test_whole_trajectories_of_an_expert_are_the_engines(self):
        pipe = self.pipe(transformer=self.expert(1))
        self.assertIs(PixArtSigmaPipeline, type(pipe))
        self.assertLess(distance(self.by_euler(pipe), self.ours["one"]), TRAJECTORY_LIMIT)

    def test_whole_trajectories_of_the_ensemble_are_the_engines(self):
        pipe = self.pipe()
        pipe.transformer.set_route("full")
        self.assertLess(distance(self.by_euler(pipe), self.ours["both"]), TRAJECTORY_LIMIT)

    def test_prompts_choose_experts_as_in_the_engine(self):
        router = self.pipe().transformer.router
        embeddings, mask = self.ours["embeddings"], self.ours["mask"]
        shares = router.shares_of_prompts(embeddings, mask)
        self.assertLess(distance(shares, self.ours["shares"]), 1e-5)
        self.assertGreater(distance(shares[0], shares[1]), 0.01)
        # Padding and what it holds change nothing, as in the stock pipeline.
        noise = torch.nn.functional.pad(embeddings, (0, 0, 0, 3), value=9)
        padded = router.shares_of_prompts(noise, torch.nn.functional.pad(mask, (0, 3)))
        self.assertLess(distance(padded, shares), 1e-12)

    def test_the_ancestral_route_keeps_the_experts_of_the_prompts(self):
        pipe = self.pipe()
        model = pipe.transformer
        model.set_route("ancestral")
        shares = torch.zeros(len(self.ours["noise"]), experts_of(self.ours))
        shares[:, 1] = 1  # the last of two: with guidance the prompts come second
        nulls = torch.zeros_like(shares)
        nulls[:, 0] = 1
        model.router.shares_of_prompts = lambda captions, mask: torch.cat([nulls, shares])
        ours = self.by_euler(self.pipe(transformer=self.expert(1)))
        self.assertLess(distance(self.by_euler(pipe), ours), 1e-6)

    def test_the_scheduler_of_the_folder_ends_where_the_engine_ends(self):
        pipe = self.pipe(transformer=self.expert(1))
        self.assertIsInstance(pipe.scheduler, UniPCMultistepScheduler)
        ended, exact = self.draw(pipe, num_inference_steps=100), self.ours["exact"]
        self.assertLess(distance(ended, exact), 0.02 * exact.abs().max().item())


def draw_again(what, folder, out):
    """The other process: knows the saved folder only."""
    if what == "--draw":
        pipe = DiTPipeline.from_pretrained(folder, trust_remote_code=True)
        pipe.set_progress_bar_config(disable=True)
        torch.save({route: StockPipeline().draw(pipe, route) for route in ROUTES}, out)
    else:
        pipe = load_pipeline(pathlib.Path(folder))
        images = pipe(
            [0, 1, 2, 3, 4, 0, 1], 4, latents=transcript("pixels")["noise"], output_type="pt"
        ).images
        torch.save({"images": images}, out)


def main():
    if sys.argv[1] in ("--draw", "--redraw"):
        return draw_again(*sys.argv[1:])
    subprocess.run([sys.argv[1], ROOT], check=True)
    if "--measure" in sys.argv:
        errors = {
            "forward": max(map(expert_error, NAMES)),
            "router": max(map(router_error, NAMES)),
            "trajectory": max(map(trajectory_error, NAMES)),
        }
        print(
            json.dumps(
                {
                    "max_abs_error": errors["forward"],
                    "router_max_abs_error": errors["router"],
                    "trajectory_max_abs_error": errors["trajectory"],
                }
            )
        )
        return None
    return unittest.main(argv=[sys.argv[0], *sys.argv[2:]])


if __name__ == "__main__":
    main()
