// SPDX-License-Identifier: Apache-2.0
#include "cli/ensemble/model_card.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <sstream>

#include "base/text.h"
#include "cli/ensemble/diffusers_folder.h"
#include "cli/ensemble/export_expert.h"
#include "cli/shell/output.h"

namespace skerry::cli {
namespace {

// One line, with what Markdown or HTML would read as markup escaped.
std::string escaped(const std::string& name) {
  std::string out;
  for (const char c : printable(name)) {
    if (std::string_view("\\`*_{}[]<>()#+-.!|&~").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string quoted(const std::string& value) { return Json(printable(value)).dump(); }

std::uint64_t parameters_of(const pb::ModelSpec& model) {
  std::map<std::string, std::uint64_t>
      sizes;  // by the trained tensor, which several files' tensors may copy
  for (const ExportedTensor& tensor : exported_tensors(model)) {
    std::uint64_t size = 1;
    for (const std::uint64_t extent : tensor.shape) size *= extent;
    sizes[tensor.from] = size;
  }
  std::uint64_t total = 0;
  for (const auto& [name, size] : sizes) total += size;
  return total;
}

std::string in_millions(std::uint64_t parameters) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(parameters < 100'000'000 ? 2 : 0)
      << static_cast<double>(parameters) / 1e6 << " million";
  return out.str();
}

std::string loss_of(const pb::RunInfo& run, std::uint32_t expert) {
  for (const pb::ExpertInfo& info : run.experts()) {
    if (info.index() != expert || info.committed_unix_ms() == 0) continue;
    std::ostringstream out;
    out << std::setprecision(4) << info.loss();
    return out.str();
  }
  return "–";
}

void write_front_matter(std::ostream& out) {
  out << "---\nlibrary_name: diffusers\npipeline_tag: unconditional-image-generation\n"
         "tags: [diffusion, flow-matching, decentralized-diffusion-models, skerry]\n"
         "# TO BE FILLED IN before you pass the model on: the licence that you give it.\n"
         "license: unknown\n---\n";
}

void write_scaling(std::ostream& out, const std::string& folder, std::string_view pipeline) {
  const auto scaling = latent_scaling(folder);
  if (!scaling) return;
  out << "vae.register_to_config(scaling_factor=" << Json(scaling->scale).dump()
      << ")  # as the dataset's are scaled\n";
  if (scaling->shift != 0)
    out << "# " << pipeline << " does not add the shift of " << Json(scaling->shift).dump()
        << " again: `skerry sample --vae` does\n";
}

void write_drawing_of_captions(std::ostream& out, const std::string& folder) {
  out << R"(from diffusers import AutoencoderKL, PixArtSigmaPipeline
vae = AutoencoderKL.from_pretrained(VAE)  # the one that made the latents
)";
  write_scaling(out, folder, "PixArtSigmaPipeline");
  out << R"(# text_encoder, tokenizer: those that made the dataset's embeddings
pipe = PixArtSigmaPipeline.from_pretrained(".", vae=vae, text_encoder=text_encoder,
                                           tokenizer=tokenizer, trust_remote_code=True)
pipe(PROMPT, use_resolution_binning=False).images[0].save("sample.png")
)";
}

// Three lines that draw.
void write_drawing(std::ostream& out, const pb::EnsembleReply& ensemble,
                   const std::string& folder) {
  const auto& classes = ensemble.dataset().classes();
  if (ensemble.run().model().caption_dim() > 0) {
    write_drawing_of_captions(out, folder);
    return;
  }
  if (!draws_pixels(folder, ensemble.run().model())) {
    out << R"(from diffusers import AutoencoderKL, DiTPipeline
vae = AutoencoderKL.from_pretrained(VAE)  # the one that made the latents
)";
    write_scaling(out, folder, "DiTPipeline");
    out << R"(pipe = DiTPipeline.from_pretrained(".", vae=vae, trust_remote_code=True)
pipe([0] * 4).images[0].save("sample.png")
)";
    return;
  }
  out << R"(from diffusers import DiffusionPipeline
pipe = DiffusionPipeline.from_pretrained(".", trust_remote_code=True)
pipe([)"
      << (classes.empty() ? "None] * 4" : quoted(classes[0]) + "] * 4, guidance_scale=3")
      << R"().images[0].save("sample.png")
)";
}

void write_use(std::ostream& out, const pb::EnsembleReply& ensemble, const std::string& folder) {
  const std::string expert = class_of_expert(ensemble.run().model());
  out << "## Use\n\nWith `pip install torch diffusers accelerate`, in this folder:\n\n```python\n";
  write_drawing(out, ensemble, folder);
  out << R"(```

`trust_remote_code` lets diffusers run the code of this folder: `pipeline.py` and
`transformer/skerry_ensemble.py`, which are short. `pipe.transformer.set_route(…)` takes `ancestral`
(the default: one expert an image), `top1`, `top2` or `full`.
One expert by itself needs no such trust:

```python
)"
      << text("from diffusers import ", expert, "\nexpert = ", expert,
              ".from_pretrained(\"expert_0\")\n")
      << R"(```

It predicts the velocity, noise − data, at `timestep` 0 (data) to 1000 (noise), as a float.
Skerry's own `skerry sample` reads this folder too, and `sha256sum -c SHA256SUMS` checks it.

)";
}

void write_data(std::ostream& out, const pb::EnsembleReply& ensemble) {
  const pb::DatasetInfo& dataset = ensemble.dataset();
  out << "## Data\n\n- Name: " << escaped(dataset.name()) << "\n- Images: " << dataset.samples()
      << ", " << ensemble.run().model().channels() << " × " << ensemble.run().model().image_size()
      << " × " << ensemble.run().model().image_size() << "\n- Classes: ";
  if (dataset.classes().empty()) out << "none";
  for (int i = 0; i < dataset.classes_size(); ++i)
    out << (i == 0 ? "" : ", ") << escaped(dataset.classes(i));
  out << "\n- Source: **TO BE FILLED IN**\n- Licence of the images: **TO BE FILLED IN**\n\n";
}

void write_training(std::ostream& out, const pb::EnsembleReply& ensemble) {
  const pb::RunInfo& run = ensemble.run();
  const pb::ModelSpec& model = run.model();
  const pb::TrainSpec& train = run.spec().train();
  const std::uint64_t parameters = parameters_of(model);
  out << "## Training\n\nRun " << escaped(run.name()) << " (" << escaped(run.id())
      << "): " << ensemble.experts_size() << " experts of " << in_millions(parameters)
      << " parameters each (" << (model.caption_dim() > 0 ? "PixArt" : "DiT") << ", width "
      << model.width() << ", depth " << model.depth() << ", " << model.heads() << " heads, patch "
      << model.patch_size()
      << "), trained apart from each other on one partition each by flow matching. "
      << "Batch " << train.batch_size() << ", learning rate " << train.learning_rate() << ", EMA "
      << train.ema() << ", label dropout " << train.label_dropout() << ", seed " << train.seed()
      << ". The weights here are the averaged ones.\n\n"
         "| expert | images of its partition | steps | of | loss at the last commit "
         "|\n|---|---|---|---|---|\n";
  std::vector<const pb::EnsembleExpert*> experts;
  for (const pb::EnsembleExpert& expert : ensemble.experts()) experts.push_back(&expert);
  std::ranges::sort(experts, {}, [](const auto* expert) { return expert->index(); });
  for (const auto* expert : experts) {
    out << "| " << expert->index() << " | " << expert->partition_samples() << " | "
        << expert->step() << " | " << expert->steps_target() << " | "
        << loss_of(run, expert->index()) << " |\n";
  }
  out << "\nThe analytic router follows in closed form from statistics of the partitions and was "
         "not "
         "trained.\n";
  if (!ensemble.has_learned_router()) return;
  out << "A learned one lies beside it (`router/learned.safetensors`, step "
      << ensemble.learned_router().step()
      << "): `skerry sample` asks it by default, the code for diffusers asks the analytic one.\n";
}

}  // namespace

std::string model_card(const pb::EnsembleReply& ensemble, const std::string& folder) {
  std::ostringstream out;
  write_front_matter(out);
  out << "# " << escaped(ensemble.run().name()) << "\n\nAn ensemble of " << ensemble.experts_size()
      << " diffusion experts and the router that joins them ([Decentralized Diffusion "
         "Models](https://arxiv.org/abs/2501.05450)), trained with Skerry.\n\n";
  write_use(out, ensemble, folder);
  write_data(out, ensemble);
  write_training(out, ensemble);
  return out.str();
}

}  // namespace skerry::cli
