// SPDX-License-Identifier: Apache-2.0
#include "cli/run/run_keys.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/text.h"
#include "cli/run/run_words.h"
#include "model/pretrained_config.h"
#include "protocol/limits.h"

namespace skerry::cli {
namespace {

constexpr double kMostSteps = protocol::kSteps;

std::uint32_t u32(const Value& value) {
  return static_cast<std::uint32_t>(std::get<std::int64_t>(value));
}
std::uint64_t u64(const Value& value) {
  return static_cast<std::uint64_t>(std::get<std::int64_t>(value));
}
double number(const Value& value) { return std::get<double>(value); }
const std::string& words(const Value& value) { return std::get<std::string>(value); }

// The value that a word stands for; an error without words where it stands for
// none.
template <class Enum, std::size_t N>
Result<Enum> chosen(const Value& value, const Words<Enum, N>& known) {
  for (const auto& [name, found] : known) {
    if (words(value) == name) return found;
  }
  return fail(ErrorCode::kInvalid, "");
}

Result<void> set_schedule(pb::RunSpec& spec, const Value& value) {
  ASSIGN_OR_RETURN(const pb::Schedule schedule, chosen(value, kScheduleWords));
  spec.mutable_train()->set_schedule(schedule);
  return {};
}

Result<void> set_kernels(pb::RunSpec& spec, const Value& value) {
  ASSIGN_OR_RETURN(const pb::Kernels kernels, chosen(value, kKernelsWords));
  spec.mutable_train()->set_kernels(kernels);
  return {};
}

Result<void> set_t_distribution(pb::RunSpec& spec, const Value& value) {
  ASSIGN_OR_RETURN(const pb::TimeDistribution distribution, chosen(value, kTimeDistributionWords));
  spec.mutable_train()->set_t_distribution(distribution);
  return {};
}

Result<void> set_state(pb::RunSpec& spec, const Value& value) {
  ASSIGN_OR_RETURN(const pb::StateForm state, chosen(value, kStateWords));
  spec.mutable_train()->set_state(state);
  return {};
}

Result<void> set_preset(pb::RunSpec& spec, const Value& value) {
  for (const auto size : {"S", "B", "L", "XL"}) {
    for (const auto patch : {"/2", "/4", "/8"}) {
      if (words(value) == text(size, patch)) {
        spec.set_preset(words(value));
        return {};
      }
    }
  }
  return fail(ErrorCode::kInvalid, "");
}

Result<void> set_init(pb::RunSpec& spec, const Value& value) {
  constexpr std::size_t kPathBytes = 4096;
  if (words(value).empty() || words(value).size() > kPathBytes)
    return fail(ErrorCode::kInvalid, "");
  spec.set_init(words(value));
  return {};
}

// It says how this machine converts the weights; no coordinator needs it.
Result<void> check_init_objective(pb::RunSpec&, const Value& value) {
  if (!parse_init_objective(words(value))) return fail(ErrorCode::kInvalid, "");
  return {};
}

// Unset is auto: the specification of a run from before this key.
Result<void> set_architecture(pb::RunSpec& spec, const Value& value) {
  if (words(value) != "auto" && words(value) != "dit" && words(value) != "pixart")
    return fail(ErrorCode::kInvalid, "");
  spec.clear_architecture();
  if (words(value) != "auto") spec.set_architecture(words(value));
  return {};
}

Result<void> set_precision(pb::RunSpec& spec, const Value& value) {
  if (words(value) != "fp32" && words(value) != "bf16") return fail(ErrorCode::kInvalid, "");
  spec.mutable_train()->set_precision(words(value));
  return {};
}

Result<void> set_router(pb::RunSpec& spec, const Value& value) {
  if (words(value) != "analytic" && words(value) != "learned") return fail(ErrorCode::kInvalid, "");
  spec.set_router_kind(words(value));
  return {};
}

Result<void> set_cards(pb::RunSpec& spec, const Value& value) {
  if (words(value) != "any" && words(value) != "same") return fail(ErrorCode::kInvalid, "");
  spec.set_cards(words(value));
  return {};
}

// Unset is one: the specification of a run from before this key.
Result<void> set_cards_per_expert(pb::RunSpec& spec, const Value& value) {
  spec.clear_cards_per_expert();
  if (u32(value) != 1) spec.set_cards_per_expert(u32(value));
  return {};
}

bool is_name(std::string_view name) {
  const auto plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= protocol::kNameBytes && plain(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return plain(c) || c == '.' || c == '_' || c == '-'; });
}

constexpr std::string_view kNameExpected =
    "a name of at most 63 characters a-z 0-9 . _ - that starts with a letter or digit";

#define SET(body)                                             \
  [](pb::RunSpec& spec, const Value& value) -> Result<void> { \
    body;                                                     \
    return {};                                                \
  }

const std::array kKeys{
    RunKey{"", "name", Kind::kText, kNameExpected, 0, 0, "", "\"fashion\"", "names the run; unique",
           [](pb::RunSpec& spec, const Value& value) -> Result<void> {
             if (!is_name(words(value))) return fail(ErrorCode::kInvalid, "");
             spec.set_name(words(value));
             return {};
           }},
    RunKey{"", "dataset", Kind::kText, kNameExpected, 0, 0, "", "\"fashion-mnist\"",
           "a dataset of `skerry dataset list`; its partitions are the experts",
           [](pb::RunSpec& spec, const Value& value) -> Result<void> {
             if (!is_name(words(value))) return fail(ErrorCode::kInvalid, "");
             spec.set_dataset(words(value));
             return {};
           }},
    RunKey{"", "seed", Kind::kWhole, "a whole number from 0", 0, 9.3e18, "1", "",
           "the same seed and file give the same weights on the same hardware",
           SET(spec.mutable_train()->set_seed(u64(value)))},

    RunKey{"model", "preset", Kind::kText,
           "S, B, L or XL with patch size /2, /4 or /8, such as \"S/2\"", 0, 0, "\"S/2\"", "",
           "or the four keys below", set_preset},
    RunKey{"model", "width", Kind::kWhole, "a whole number from 8 to 8192", 8, 8192, "", "",
           "size of a token; a multiple of 4 and of heads", SET(spec.set_width(u32(value)))},
    RunKey{"model", "depth", Kind::kWhole, "a whole number from 1 to 128", 1, 128, "", "", "blocks",
           SET(spec.set_depth(u32(value)))},
    RunKey{"model", "heads", Kind::kWhole, "a whole number from 1 to 128", 1, 128, "", "",
           "attention heads", SET(spec.set_heads(u32(value)))},
    RunKey{"model", "patch_size", Kind::kWhole, "a whole number from 1 to 64", 1, 64, "", "",
           "pixels of a token's side; divides the image size",
           SET(spec.set_patch_size(u32(value)))},

    RunKey{"model", "architecture", Kind::kText, "\"auto\", \"dit\" or \"pixart\"", 0, 0,
           "\"auto\"", "",
           "pixart reads captions, dit labels; auto: pixart if the dataset has text",
           set_architecture},

    RunKey{"model", "interpolation_scale", Kind::kNumber, "a number from 0.015625 to 64", 1.0 / 64,
           64, "", "",
           "stretches a pixart's positions, as the config of weights to start from says",
           SET(spec.set_interpolation_scale(number(value)))},
    RunKey{"model", "init", Kind::kText, "a folder", 0, 0, "", "",
           "every expert starts from these weights instead of random ones: of diffusers' DiT or "
           "PixArt, or of an exported expert; without a shape in [model] it is theirs",
           set_init},
    RunKey{"model", "init_objective", Kind::kText, "\"auto\", \"flow\" or \"epsilon\"", 0, 0,
           "\"auto\"", "",
           "what those weights predict; auto: as their scheduler_config.json says, else a flow; "
           "epsilon also for the v of DDPM",
           check_init_objective},

    RunKey{"train", "steps", Kind::kWhole, "a whole number from 1 to 1000000000", 1, kMostSteps, "",
           "2000", "optimiser steps of each expert",
           SET(spec.mutable_train()->set_steps(u64(value)))},
    RunKey{"train", "batch_size", Kind::kWhole, "a whole number from 1 to 65536", 1, 65536, "64",
           "", "samples of one step", SET(spec.mutable_train()->set_batch_size(u32(value)))},
    RunKey{"train", "micro_batch", Kind::kWhole, "a whole number from 0 to 65536", 0, 65536, "0",
           "",
           "samples at a time, whose gradients are summed; 0: the whole batch; part of what makes "
           "bits equal",
           SET(spec.mutable_train()->set_micro_batch(u32(value)))},
    RunKey{"train", "gradient_checkpointing", Kind::kSwitch, "true or false", 0, 0, "false", "",
           "less memory for about a third more time; the same bits",
           SET(spec.mutable_train()->set_gradient_checkpointing(std::get<bool>(value)))},
    RunKey{"train", "state", Kind::kText, "\"full\" or \"lean\"", 0, 0, "\"full\"", "",
           "lean: moments and mean of weights in bf16, 10 bytes a parameter instead of 16, also in "
           "checkpoints",
           set_state},
    RunKey{"train", "learning_rate", Kind::kNumber, "a number from 1e-9 to 1", 1e-9, 1, "1e-4", "",
           "of AdamW", SET(spec.mutable_train()->set_learning_rate(number(value)))},
    RunKey{"train", "schedule", Kind::kText, "\"constant\", \"linear\", \"cosine\" or \"cyclic\"",
           0, 0, "\"constant\"", "",
           "of the learning rate after warm-up: constant, linear, cosine (both to 0), cyclic (a "
           "cosine each "
           "cycle)",
           set_schedule},
    RunKey{"train", "cycle_steps", Kind::kWhole, "a whole number from 1 to 1000000000", 1,
           kMostSteps, "", "", "steps of one cycle of schedule = \"cyclic\"",
           SET(spec.mutable_train()->set_cycle_steps(u64(value)))},
    RunKey{"train", "warmup_steps", Kind::kWhole, "a whole number from 0 to train.steps", 0,
           kMostSteps, "0", "", "steps over which the learning rate rises from 0",
           SET(spec.mutable_train()->set_warmup_steps(u64(value)))},
    RunKey{"train", "clip", Kind::kNumber, "a number from 0 to 1e9", 0, 1e9, "1.0", "",
           "limit of the gradient's norm; 0: off",
           SET(spec.mutable_train()->set_clip(number(value)))},
    RunKey{"train", "ema", Kind::kNumber, "a number from 0 to 0.9999999", 0, 0.9999999, "0.9999",
           "", "decay of the averaged weights that are exported",
           SET(spec.mutable_train()->set_ema(number(value)))},
    RunKey{"train", "label_dropout", Kind::kNumber, "a number from 0 to 1", 0, 1, "0.1", "",
           "share of samples trained without their label, which guidance needs",
           SET(spec.mutable_train()->set_label_dropout(number(value)))},
    RunKey{"train", "weight_decay", Kind::kNumber, "a number from 0 to 10", 0, 10, "0.0", "",
           "of AdamW", SET(spec.mutable_train()->set_weight_decay(number(value)))},
    RunKey{"train", "t_distribution", Kind::kText, "\"uniform\" or \"lognormal\"", 0, 0,
           "\"uniform\"", "",
           "of the noise level t: uniform, or lognormal for the logit-normal of Stable Diffusion 3",
           set_t_distribution},
    RunKey{
        "train", "flip", Kind::kSwitch, "true or false", 0, 0, "false", "",
        "mirrors half of the images left to right (of latents the columns), drawn anew each time; "
        "not for captions that say left or right",
        SET(spec.mutable_train()->set_flip(std::get<bool>(value)))},
    RunKey{"train", "weight_norm", Kind::kSwitch, "true or false", 0, 0, "false", "",
           "holds the rows of attention and MLP at the root mean square of the lengths they are "
           "drawn with; "
           "not with model.init",
           SET(spec.mutable_train()->set_weight_norm(std::get<bool>(value)))},
    RunKey{"train", "kernels", Kind::kText, "\"fast\" or \"reference\"", 0, 0, "\"reference\"",
           "\"fast\"", "fast; without the key reference: what PyTorch computes, bit for bit",
           set_kernels},
    RunKey{"train", "precision", Kind::kText, "\"fp32\" or \"bf16\"", 0, 0, "\"fp32\"", "",
           "bf16: matrix products in bf16; weights stay fp32", set_precision},
    RunKey{"train", "threads", Kind::kWhole, "a whole number from 1 to 1024", 1, 1024, "1", "",
           "CPU threads of one engine, part of what makes bits equal",
           SET(spec.mutable_train()->set_threads(u32(value)))},

    RunKey{"checkpoint", "round_seconds", Kind::kNumber, "a number from 0.1 to 86400", 0.1, 86400,
           "60", "", "training time between commits: the most that a lost node costs",
           SET(spec.set_round_seconds(number(value)))},
    RunKey{"checkpoint", "round_steps", Kind::kWhole, "a whole number from 1 to 1000000000", 1,
           kMostSteps, "", "", "takes the place of round_seconds",
           SET(spec.set_round_steps(u64(value)))},
    RunKey{"checkpoint", "offline_rounds", Kind::kWhole, "a whole number from 0 to 100000", 0, 1e5,
           "10", "", "rounds a node trains on while the coordinator is away",
           SET(spec.set_offline_rounds(u32(value)))},
    RunKey{"checkpoint", "copies", Kind::kWhole, "a whole number from 1 to 16", 1, 16, "1", "",
           "machines that hold a checkpoint before it counts: the coordinator, then nodes other "
           "than its own",
           SET(spec.set_copies(u32(value)))},
    RunKey{"checkpoint", "keep", Kind::kWhole, "a whole number from 1 to 1000", 1, 1000, "2", "",
           "checkpoints kept of each expert", SET(spec.set_keep(u32(value)))},

    RunKey{"schedule", "turn_seconds", Kind::kNumber, "a number from 1 to 10000000", 1, 1e7, "1200",
           "", "seconds of one turn, where there are fewer slots than experts",
           SET(spec.set_turn_seconds(number(value)))},
    RunKey{"schedule", "turn_rounds", Kind::kWhole, "a whole number from 0 to 1000000", 0, 1e6, "0",
           "", "commits of one turn, in place of turn_seconds; 0: turn_seconds counts",
           SET(spec.set_turn_rounds(u32(value)))},
    RunKey{"schedule", "cards", Kind::kText, "\"any\" or \"same\"", 0, 0, "\"any\"", "",
           "same: an expert goes on only on a card like the one of its last checkpoint", set_cards},
    RunKey{"schedule", "cards_per_expert", Kind::kWhole, "a whole number from 0 to 64", 0, 64, "1",
           "",
           "like cards of one node that share each batch of an expert; they divide batch_size. A "
           "node with fewer free trains with these. 0: automatic, free cards join while no expert "
           "waits and each doubling trains 1.3 times as fast",
           set_cards_per_expert},
    RunKey{"budget", "dollars", Kind::kNumber, "a number from 0 to 1e9", 0, protocol::kDollarsMost,
           "0", "",
           "once the leases have cost so much, the run pauses after its commits; 0: no limit",
           SET(spec.set_budget_dollars(number(value)))},
    RunKey{"budget", "dollars_per_hour", Kind::kNumber, "a number from 0 to 1e9", 0,
           protocol::kDollarsMost, "0", "",
           "no lease is granted that would make all of them together cost more; 0: no limit",
           SET(spec.set_budget_dollars_per_hour(number(value)))},
    RunKey{"budget", "max_node_price", Kind::kNumber, "a number from 0 to 10000", 0,
           protocol::kPriceMost, "0", "",
           "a node that costs more dollars an hour gets no lease; 0: no limit",
           SET(spec.set_max_node_price(number(value)))},
    RunKey{"router", "kind", Kind::kText, "\"analytic\" or \"learned\"", 0, 0, "\"analytic\"", "",
           "from the partition statistics, without training; learned: a small model, one more job "
           "of the run",
           set_router},
};
#undef SET

// Levenshtein distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::span<const RunKey> run_keys() { return kKeys; }

const RunKey* find_run_key(std::string_view section, std::string_view name) {
  const auto found = std::find_if(kKeys.begin(), kKeys.end(), [&](const RunKey& key) {
    return key.section == section && key.name == name;
  });
  return found == kKeys.end() ? nullptr : &*found;
}

bool is_run_section(std::string_view name) {
  return !name.empty() && std::any_of(kKeys.begin(), kKeys.end(),
                                      [&](const RunKey& key) { return key.section == name; });
}

std::string_view nearest_word(std::string_view found, std::span<const std::string_view> known) {
  std::string_view best;
  std::size_t least = std::max<std::size_t>(2, found.size() / 3) + 1;
  for (const std::string_view word : known) {
    // "training" means "train", however much longer it is.
    const bool begins = found.size() >= 3 && word.size() >= 3 &&
                        (found.starts_with(word) || word.starts_with(found));
    const std::size_t away = begins ? 1 : distance(found, word);
    if (away < least) {
      least = away;
      best = word;
    }
  }
  return best;
}

}  // namespace skerry::cli
