// SPDX-License-Identifier: Apache-2.0
// skerry-fuzz-seeds FOLDER: writes the good-… files of the corpus anew, one
// folder for each target. Run it after a format has changed; found-… and bad-…
// files stay as they are.
#include <google/protobuf/descriptor.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "base/check.h"
#include "base/text.h"
#include "cli/run/run_file.h"
#include "diffusion/testing/test_images.h"
#include "gossip/testing/testing.h"
#include "protocol/context.h"
#include "protocol/enrol.h"
#include "storage/layout.h"
#include "tests/fuzz/targets.h"

namespace skerry::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::int64_t kFarAway = 4'000'000'000'000;  // ms: 2096

class Folder {
 public:
  explicit Folder(std::filesystem::path path) : path_(std::move(path)) {}

  // REQUIRES: the target accepts the bytes.
  void write(std::string_view target, const std::string& name, const std::string& bytes) const {
    SKERRY_CHECK(find_target(target)->run(bytes) == Verdict::kAccepted, target,
                 " refuses the seed ", name);
    std::filesystem::create_directories(path_ / target);
    std::ofstream(path_ / target / ("good-" + name), std::ios::binary) << bytes;
  }

 private:
  std::filesystem::path path_;
};

// ---- Messages: fields filled by type, or by name where a validator is strict

void fill(Message& message);

std::string text_for(const std::string& field) {
  const std::map<std::string, std::string> choosy{
      {"precision", "fp32"}, {"preset", "S/2"}, {"role", "shard"}, {"router_kind", "analytic"}};
  const auto found = choosy.find(field);
  return found == choosy.end() ? "a1" : found->second;
}

std::uint32_t number_for(const std::string& field) { return field == "image_size" ? 28 : 1; }

bool left_out(const std::string& field) {
  return field == "from_step" || field == "width" || field == "depth" || field == "heads" ||
         field == "patch_size" || field == "missing" || field == "partition" || field == "whole";
}

void set(Message& message, const FieldDescriptor& field) {
  const Reflection& all = *message.GetReflection();
  const bool list = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return list ? all.AddInt32(&message, &field, 1) : all.SetInt32(&message, &field, 1);
    case FieldDescriptor::CPPTYPE_INT64:
      return list ? all.AddInt64(&message, &field, 1) : all.SetInt64(&message, &field, 1);
    case FieldDescriptor::CPPTYPE_UINT32:
      return list ? all.AddUInt32(&message, &field, number_for(field.name()))
                  : all.SetUInt32(&message, &field, number_for(field.name()));
    case FieldDescriptor::CPPTYPE_UINT64:
      return list ? all.AddUInt64(&message, &field, 1) : all.SetUInt64(&message, &field, 1);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? all.AddDouble(&message, &field, 0.5) : all.SetDouble(&message, &field, 0.5);
    case FieldDescriptor::CPPTYPE_BOOL:
      return list ? all.AddBool(&message, &field, true) : all.SetBool(&message, &field, true);
    case FieldDescriptor::CPPTYPE_ENUM:
      return list ? all.AddEnumValue(&message, &field, 1) : all.SetEnumValue(&message, &field, 1);
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string bytes(field.name() == "signature" ? 64 : 32, 'h');
      const std::string value =
          field.type() == FieldDescriptor::TYPE_BYTES ? bytes : text_for(field.name());
      return list ? all.AddString(&message, &field, value) : all.SetString(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return fill(list ? *all.AddMessage(&message, &field) : *all.MutableMessage(&message, &field));
    default:
      SKERRY_CHECK(false, "no value for ", field.full_name());
  }
}

void fill(Message& message) {
  if (auto* model = dynamic_cast<pb::ModelSpec*>(&message)) {
    model->set_image_size(28), model->set_channels(1), model->set_patch_size(2),
        model->set_width(64);
    model->set_depth(2), model->set_heads(2), model->set_classes(10), model->set_router_experts(2);
    return;
  }
  const auto& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.containing_oneof() == nullptr && !left_out(field.name())) set(message, field);
  }
}

// Makes one message for every type among the members of its oneof. A member
// with a oneof of its own gives one for each of those.
template <class Seed>
void each_kind(Message& message, const std::string& name, const Seed& seed) {
  const auto& type = *message.GetDescriptor();
  if (type.oneof_decl_count() == 0) {
    fill(message);
    return seed(name);
  }
  std::set<const google::protobuf::Descriptor*> written;
  for (int i = 0; i < type.oneof_decl(0)->field_count(); ++i) {
    const FieldDescriptor& field = *type.oneof_decl(0)->field(i);
    if (!written.insert(field.message_type()).second) continue;
    message.Clear();
    fill(message);
    if (field.message_type() == nullptr) {  // bytes, with a decoder of their own
      set(message, field);
      seed(text(name, name.empty() ? "" : "-", field.name()));
      continue;
    }
    Message& body = *message.GetReflection()->MutableMessage(&message, &field);
    each_kind(body, text(name, name.empty() ? "" : "-", field.name()), seed);
  }
}

template <class Kind>
void write_kinds(const Folder& folder, std::string_view target, char selector,
                 const std::string& prefix) {
  Kind message;
  each_kind(message, prefix, [&](const std::string& name) {
    folder.write(target, name, selector + message.SerializeAsString());
  });
}

// ---- Identity ---------------------------------------------------------------

protocol::Identity identity(char seed) {
  return *protocol::Identity::from_seed(std::string(32, seed));
}

protocol::JoinToken a_token() {
  return {{"tcp://host:7600", "tcp://host:7601", "tcp://[::1]:7602"},
          identity('c').ed25519_key(),
          TokenId("t1"),
          std::string(32, 's'),
          pb::ROLE_NODE,
          kFarAway};
}

pb::Certificate a_certificate() {
  pb::CertificateBody body;
  body.set_ed25519_key(identity('n').ed25519_key());
  body.set_role(pb::ROLE_NODE);
  body.set_name("node-1");
  body.set_issued_unix_ms(1);
  body.set_expires_unix_ms(kFarAway);
  return protocol::issue_certificate(identity('c'), body);
}

void write_identity(const Folder& folder) {
  const protocol::JoinToken token = a_token();
  folder.write("token", "text", protocol::format_token(token));
  folder.write("token", "body", 'b' + protocol::token_body(token).SerializeAsString());
  folder.write("certificate", "whole", a_certificate().SerializeAsString());
  folder.write("certificate", "body", 'b' + a_certificate().body());
  folder.write(
      "control", "enrol",
      'e' + protocol::build_enrol_request(identity('n'), token, "node-1", 7).SerializeAsString());
  pb::EnrolReply reply;
  *reply.mutable_certificate() = a_certificate();
  folder.write("control", "enrolled", 'E' + reply.SerializeAsString());
  protocol::Context context{
      "alice", pb::ROLE_ADMIN, token.endpoints, token.coordinator_key, std::string(32, 's'),
      {},      a_certificate()};
  folder.write("context", "admin", protocol::format_context(context));
  context.seed.clear();
  context.identity = "identity";
  context.role = pb::ROLE_NODE;
  folder.write("context", "node", protocol::format_context(context));
  context.certificate.Clear();
  folder.write("context", "bare", protocol::format_context(context));
}

// ---- Records ----------------------------------------------------------------

void write_records(const Folder& folder) {
  using namespace gossip;
  const Author coordinator(0);
  const Author node(1);
  pb::RecordBody run = run_fact("r-1", 4);
  run.mutable_run()->add_without(1);
  run.mutable_run()->add_without(3);
  const std::vector<pb::SignedRecord> all{
      node.sign(node_fact("tcp://host:7700", {"a", "b"}), 1), coordinator.sign(run, 1),
      node.sign(expert_fact("r-1", 2, 100, "checkpoint"), 2),
      coordinator.sign(revocation_fact(Author(2).id()), 1), node.sign(withdrawn(node_fact("")), 3)};
  const char* const names[] = {"node", "run", "expert", "revocation", "withdrawn"};
  pb::GossipMessage message;
  Verifier verifier(the_coordinator().ed25519_key());
  Table table(coordinator.id());
  for (std::size_t i = 0; i < all.size(); ++i) {
    folder.write("record", text(names[i], "-body"),
                 (all[i].has_certificate() ? 'n' : 'c') + all[i].body());
    folder.write("record", names[i], 'r' + all[i].SerializeAsString());
    *message.add_records() = all[i];
    const RecordPtr record = genuine(verifier, all[i]);
    table.put(record, {}, at({}));
    add_head(*message.mutable_offer(), *record);
  }
  folder.write("record", "table", 't' + save_table(table, at({})));
  message.set_digest(encode_fingerprints(table.fingerprints()));
  pb::Listing& listing = *message.add_listings();
  listing.set_last(~gossip::Position{0});
  *listing.mutable_heads() = message.offer();
  message.add_wants(1);
  folder.write("record", "message", 'g' + message.SerializeAsString());
}

// ---- Storage ----------------------------------------------------------------

void write_storage(const Folder& folder) {
  using namespace storage;
  const std::string data(48, 'x');
  const std::vector<TensorView> tensors{
      {"ema/a", DType::kF32, {2, 3}, std::string_view(data).substr(0, 24)},
      {"a", DType::kF32, {2, 3}, std::string_view(data).substr(24)},
      {"none", DType::kI64, {0, 4}, {}},
      {"scalar", DType::kU8, {}, "s"}};
  const std::string file = *encode_safetensors(tensors, {{"step", "10"}, {"kind", "checkpoint"}});
  folder.write("safetensors", "checkpoint", file);
  const std::string halves(64, 'x'), labels("\7\0\0\0\xff\xff\xff\xff", 8);
  folder.write("safetensors", "latents",
               *encode_safetensors({{"latents", DType::kF16, {2, 1, 4, 4}, halves},
                                    {"labels", DType::kI32, {2}, labels}},
                                   {}));
  folder.write("safetensors", "empty", *encode_safetensors({}, {}));
  Manifest facts;
  facts.kind = ManifestKind::kCheckpoint;
  facts.run = RunId("r-1");
  facts.step = 10;
  facts.epoch = Epoch(3);
  facts.parent = blake2b("parent");
  facts.fingerprint = "cpu";
  folder.write("manifest", "checkpoint",
               build_checkpoint_manifest(*Safetensors::parse(file), facts)->encoded);
  Manifest shard;
  shard.name = "shard-0.safetensors";
  shard.parts.push_back(
      {"file", {}, {{blake2b("a"), 1000}, {blake2b("b"), 4 << 20}, {blake2b("a"), 1000}}});
  folder.write("manifest", "file", encode_manifest(shard)->encoded);
}

// ---- Images -----------------------------------------------------------------

std::string idx_input(const std::string& labels, const std::string& images) {
  std::string out{static_cast<char>(labels.size()), static_cast<char>(labels.size() >> 8)};
  return out + labels + images;
}

void write_images(const Folder& folder) {
  using namespace diffusion::testing;
  const std::vector<diffusion::Image> pictures{picture(5, 4, 1, 1), picture(5, 4, 1, 2),
                                               picture(5, 4, 1, 3)};
  const std::string images = idx_images(pictures);
  const std::string labels = idx_labels({1, 2, 3});
  folder.write("idx", "labelled", idx_input(labels, images));
  folder.write("idx", "plain", idx_input("", images));
  folder.write("idx", "gzip", idx_input(gzipped(labels), gzipped(images)));
  const std::string png = png_bytes(picture(6, 5, 3, 4));
  const std::string jpeg = jpeg_bytes(picture(9, 7, 3, 5));
  folder.write("cifar", "10", '\0' + cifar_record({7}, picture(32, 32, 3, 8)));
  folder.write("cifar", "100", '\1' + cifar_record({3, 70}, picture(32, 32, 3, 9)));
  folder.write("npy", "floats", npy_bytes(2, 3, {1, 2, 3, 4, 5, 6}));
  std::string halves =
      npy_bytes(3, 1, {1, 2, 3}).substr(0, 128) + std::string("\x00\x3c\x01\x00\xff\x7b", 6);
  folder.write("npy", "halves", halves.replace(halves.find("<f4"), 3, "<f2"));
  const std::string latent = floats(std::vector<float>(16, 0.5F));
  folder.write("npy", "latents", npy_file("<f4", {2, 1, 4, 4}, latent + latent));
  folder.write("npy", "labels", npy_file("|i1", {3}, "\7\xff\1"));
  folder.write("image", "webp", webp_bytes(picture(9, 6, 3, 5)));
  folder.write("image", "png", png);
  folder.write("image", "png-grey", png_bytes(picture(4, 4, 1, 6)));
  folder.write("image", "jpeg", jpeg);
  folder.write("image", "jpeg-grey", jpeg_bytes(picture(8, 8, 1, 7)));
  const std::string tar = tar_bytes(
      {{"a/1.png", png}, {"a/1.cls", "7\n"}, {"b/2.json", R"({"label": 1234})"}, {"b/2.png", png}});
  folder.write("tar", "plain", tar);
  folder.write("tar", "gzip", gzipped(tar));
  folder.write("tar", "latents",
               tar_bytes({{"a/1.npy", npy_file("<f4", {1, 4, 4}, latent)}, {"a/1.cls", "7\n"}}));
}

void write_all(const Folder& folder) {
  write_kinds<pb::ControlRequest>(folder, "control", 'r', "");
  write_kinds<pb::ControlReply>(folder, "control", 'R', "reply");
  write_kinds<pb::BlobMessage>(folder, "control", 'b', "blob");
  write_kinds<pb::EngineRequest>(folder, "engine", 'q', "");
  write_kinds<pb::EngineEvent>(folder, "engine", 'v', "");
  folder.write("engine", "frames", std::string("f\x02\0\0\0ab\0\0\0\0\x01\0\0\0c", 16));
  folder.write("engine", "text", "tloss \xc3\xa9 0.5 \xff");
  write_identity(folder);
  write_records(folder);
  write_storage(folder);
  write_images(folder);
  folder.write("run_file", "example", cli::example_run_file());
  folder.write("run_file", "short", "name = \"a\"\ndataset = \"b\"\n[train]\nsteps = 10\n");
  folder.write(
      "run_file", "limits",
      "name = 'a'\ndataset = 'b'\ntrain = { steps = 1_000_000_000, clip = 0.0 }\n[model]\nwidth = "
      "8192\ndepth = 128\n"
      "heads = 128\npatch_size = 64\n[checkpoint]\nround_steps = 0x10\n");
}

}  // namespace
}  // namespace skerry::fuzz

int main(int count, char** words) {
  if (count != 2) {
    std::cerr << "usage: skerry-fuzz-seeds FOLDER\n";
    return 2;
  }
  skerry::fuzz::write_all(skerry::fuzz::Folder(words[1]));
}
