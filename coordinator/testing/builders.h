// SPDX-License-Identifier: Apache-2.0
// What tests of the coordinator's core say: identities, datasets, runs,
// commits.
#pragma once

#include <set>
#include <string>

#include "base/text.h"
#include "coordinator/core/core.h"
#include "protocol/limits.h"

namespace skerry::coordinator::testing {

struct Who {
  std::string device = "cpu";  // of each of its slots
  std::uint64_t memory_bytes = 0;
  std::string name;
  std::string ed25519;
  std::string key;
  NodeId id;
  std::string connection;
  std::uint64_t incarnation = 0;
  std::uint64_t sequence = 0;
  std::uint64_t generation = 0;  // of epochs, the highest seen
  std::string address = "192.0.2.1";
  std::string host;               // label
  std::uint64_t applied = 0;      // version of its assignment
  std::set<std::string> durable;  // replicas that it says it holds, by manifest
  double price = 0;               // dollars an hour
};

inline Who make_who(const std::string& name) {
  Who who;
  who.name = name;
  who.ed25519 = name + std::string(protocol::kNameBytes, '.');
  who.ed25519.resize(32);
  who.key = std::string(who.ed25519.rbegin(), who.ed25519.rend());
  who.id = NodeId(blake2b(who.ed25519).hex().substr(0, 32));
  return who;
}

inline pb::DatasetAdd dataset(const std::string& name, std::uint32_t partitions) {
  pb::DatasetAdd content;
  content.set_name(name);
  content.set_index_json("{}");
  content.set_partitions(partitions);
  content.set_samples(1000 * partitions);
  content.set_channels(1);
  content.set_image_size(28);
  const auto add = [&](const std::string& file, const std::string& role, int partition) {
    auto& added = *content.add_files();
    added.mutable_object()->set_name(file);
    added.mutable_object()->set_manifest(blake2b(name + file).raw());
    added.mutable_object()->set_manifest_bytes(100);
    added.mutable_object()->set_bytes(1000);
    added.set_role(role);
    added.set_partition(partition);
    added.set_samples(role == "shard" ? 1000 : 0);
  };
  add("router.safetensors", "router", -1);
  for (std::uint32_t k = 0; k < partitions; ++k) {
    add(text("shard-", k, "-0.safetensors"), "shard", static_cast<int>(k));
    add(text("partition-", k, ".safetensors"), "partition", static_cast<int>(k));
  }
  return content;
}

inline pb::RunSpec run_spec(const std::string& name, std::uint64_t steps = 100) {
  pb::RunSpec spec;
  spec.set_name(name);
  spec.set_dataset("data");
  spec.set_preset("S/2");
  spec.mutable_train()->set_steps(steps);
  spec.mutable_train()->set_batch_size(64);
  spec.mutable_train()->set_learning_rate(1e-4);
  spec.mutable_train()->set_ema(0.999);
  spec.mutable_train()->set_precision("fp32");
  spec.set_round_steps(10);
  spec.set_copies(1);
  spec.set_keep(2);
  spec.set_turn_rounds(5);
  spec.set_router_kind("analytic");
  return spec;
}

// A heartbeat that says what the lease's own slot does.
inline pb::Heartbeat heartbeat_of(const pb::SlotAssignment& slot, pb::SlotPhase phase) {
  pb::Heartbeat beat;
  pb::SlotStatus& status = *beat.add_slots();
  status.set_slot(slot.slot());
  status.set_run(slot.run());
  status.set_expert(slot.expert());
  status.set_epoch(slot.epoch());
  status.set_phase(phase);
  return beat;
}

// The commit a node would send next for its slot: `steps` on from the head it
// was assigned.
inline pb::Commit next_commit(const pb::SlotAssignment& slot, std::uint64_t steps = 10,
                              const std::string& salt = "") {
  pb::Commit commit;
  commit.set_run(slot.run());
  commit.set_expert(slot.expert());
  commit.set_epoch(slot.epoch());
  commit.set_attempt(slot.attempt());
  commit.set_from_step(slot.head_step());
  commit.set_to_step(slot.head_step() + steps);
  commit.set_parent(slot.head().manifest());
  commit.mutable_manifest()->set_manifest(
      blake2b(text(slot.run(), slot.expert(), slot.epoch(), slot.attempt(), commit.to_step(), salt))
          .raw());
  commit.mutable_manifest()->set_manifest_bytes(500);
  commit.mutable_manifest()->set_bytes(5000);
  commit.mutable_metrics()->set_loss(0.5);
  commit.mutable_metrics()->set_gradient_norm(1);
  commit.set_fingerprint("engine 1");
  return commit;
}

inline ObjectStored object_of(const pb::Commit& commit) {
  ObjectStored object;
  object.manifest = *Hash::from_raw(commit.manifest().manifest());
  object.manifest_bytes = commit.manifest().manifest_bytes();
  object.bytes = commit.manifest().bytes();
  object.checkpoint = true;
  object.facts = {.name = "",
                  .run = RunId(commit.run()),
                  .expert = commit.expert(),
                  .epoch = Epoch(commit.epoch()),
                  .attempt = commit.attempt(),
                  .step = commit.to_step(),
                  .parent = std::nullopt,
                  .fingerprint = commit.fingerprint()};
  if (!commit.parent().empty()) object.facts.parent = *Hash::from_raw(commit.parent());
  return object;
}

}  // namespace skerry::coordinator::testing
