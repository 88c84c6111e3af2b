// SPDX-License-Identifier: Apache-2.0
// The coordinator's core: roster, tokens, datasets, runs, leases, commits and
// events, as one state machine without sockets, disk or clock. Owned and fed by
// one thread, the host's (host.h) or the simulation's.
//
// step(event, now) returns Effects; perform.h carries them out, in the one
// order that it states. Batches become durable in the order of their numbers,
// each whole or not at all, and are reported by Persisted. An answer leaves
// once the batch `after_batch` is durable (S7). Only answers to heartbeats wait
// for none: they say nothing that is not durable already, and a slow disk must
// not expire leases.
//
// Undeliverable messages are dropped; senders retry. A failed write ends the
// process; the next start loads what is durable.
//
// Conversation rules that a client sees:
//   - Hello comes first on each connection. Anything else is answered by an error of code "conflict" whose
//     message is kHelloFirst, upon which a daemon sends Hello again (its socket may have redialled by itself).
//   - Every request is idempotent: the same message again gets the same answer.
//   - A commit that needs a fetch is answered COMMIT_FETCHING, and once decided again under the same request
//     id, as given by the last asker. Asking again is always right.
//   - An error of code "unavailable" is for now: retry.
//   - A holder that is told yield_after_commit stops, commits all that it has trained, and then says ReturnLease: no
//     commit ends a lease but an expert's last, so that none is cut off from the steps that followed it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/ids.h"
#include "base/result.h"
#include "coordinator/core/config.h"
#include "protocol/gossip.pb.h"
#include "protocol/skerry.pb.h"

namespace skerry::coordinator {

inline constexpr char kHelloFirst[] = "Hello must come first on a connection";
inline constexpr char kRecalling[] =
    "this coordinator was restored and asks its nodes first what it had revoked since; ask again "
    "in a moment";

// The transport's opaque name of one connection; never read for an identity
// (S12).
using ConnectionId = std::string;

struct KeyValue {
  std::string key;
  std::string value;
};

struct Write {
  std::string key;
  std::optional<std::string> value;  // none: deleted
};

// ---- What happens -----------------------------------------------------------

struct Received {
  ConnectionId connection;
  std::string key;             // X25519, 32 bytes, as the transport saw it
  pb::ControlRequest request;  // validated (protocol/validate.h)
  std::string address;         // the peer's, for people; may be empty
};

struct EnrolReceived {
  ConnectionId connection;
  std::string key;
  pb::EnrolRequest request;
  std::string address;  // as above
};

// Somebody was refused before the core heard anything. What the core itself
// refuses for want of a right is told alike.
struct TurnedAway {
  std::string key;      // X25519; empty: not known, or known by `node`
  std::string address;  // may be empty
  std::string why;      // one of a few phrases: the same ones are told together, by the minute
  std::string detail;   // of this one
  NodeId node;
};

struct Closed {
  ConnectionId connection;
};

struct Persisted {
  std::uint64_t batch = 0;
};

// What a checkpoint's manifest says of itself; for a plain file all but the
// name stay empty.
struct ObjectFacts {
  std::string name;
  std::string run;
  std::uint32_t expert = 0;
  std::uint64_t epoch = 0;
  std::uint32_t attempt = 0;
  std::uint64_t step = 0;
  std::optional<Hash> parent;
  std::string fingerprint;
};

// The object is durable, manifest and every chunk, each hash verified. Also
// said once for each object found at start.
struct ObjectStored {
  Hash manifest;
  std::uint64_t manifest_bytes = 0;
  std::uint64_t bytes = 0;
  bool checkpoint = false;
  ObjectFacts facts;
};

struct ObjectFailed {
  Hash manifest;
  std::string reason;
  bool may_retry = true;  // false: the bytes themselves are wrong
};

// A stored object whose chunks were hashed again has one that is wrong: the
// object is served no more. A file is mended by a new upload, which
// ObjectStored reports.
struct ObjectDamaged {
  Hash manifest;
};

// Nodes that are connected say that they hold what is damaged here: whole, as
// far as they know.
struct HeldElsewhere {
  Hash manifest;
  std::vector<NodeId> nodes;
};

// How far the verification of an object is that Effects::verifies asked for;
// the last word says done, after ObjectDamaged where that follows.
struct ObjectChecked {
  Hash manifest;
  std::uint64_t bytes = 0;  // read and hashed so far
  std::uint64_t chunks = 0;
  bool done = false;
  std::vector<Hash> damaged;  // chunks
};

struct ObjectProgress {
  Hash manifest;
  std::uint64_t received_bytes = 0;  // so far, of this object
};

// What the records that nodes hold say of this coordinator, whole: it may have
// been restored to a state that is older.
struct RecordsReceived {
  std::vector<NodeId> revoked;      // by a record of this coordinator
  std::vector<NodeId> recalled;     // nodes that gave back every revocation that they hold
  std::vector<pb::RunRecord> runs;  // that are not withdrawn
};

// Every checkpoint that records tell of for the experts of a run, as
// Effects::seeks asked for; of each expert the best first
// (gossip::expert_heads).
struct RunRecords {
  struct Head {
    pb::ExpertRecord record;
    NodeId author;
    bool acknowledged = false;  // by a record of this coordinator; else a node says so
  };
  RunId run;
  std::vector<Head> heads;
};

// The content of a stored file, as Effects::reads asked for.
struct FileRead {
  Hash manifest;
  std::string bytes;
};

struct Tick {};

// The host's loop came round late by this much; said before what had queued up
// meanwhile.
struct LoopLag {
  Duration lag{};
};

struct DiskFree {
  std::uint64_t bytes = 0;
};

using Event =
    std::variant<Received, EnrolReceived, TurnedAway, Closed, Persisted, ObjectStored, ObjectFailed,
                 ObjectDamaged, HeldElsewhere, ObjectChecked, ObjectProgress, RecordsReceived,
                 RunRecords, FileRead, Tick, LoopLag, DiskFree>;

// ---- What is to be done -----------------------------------------------------

enum class Endpoint { kEnrol, kControl };

struct Send {
  ConnectionId connection;
  Endpoint endpoint = Endpoint::kControl;
  std::variant<pb::ControlReply, pb::EnrolReply> message;
  std::uint64_t after_batch = 0;
};

enum class Purpose { kCheckpoint, kFile };

// Pull the object over blob from a node. The same object again, perhaps with
// another source, goes on where it was.
struct Fetch {
  Hash manifest;
  std::uint64_t manifest_bytes = 0;
  std::uint64_t bytes = 0;
  NodeId from;
  Purpose purpose = Purpose::kFile;
  std::string name;  // of a file
};

// To be removed: nothing durable names it any more, and nothing else wants it
// (S8). A crash before the host removes it leaves it, and the next start
// reports it by ObjectStored, upon which the core drops it again.
struct Drop {
  Hash manifest;
  Purpose purpose = Purpose::kFile;
};

// A key that the transport is to let in on control and blob, or no longer.
struct RosterChange {
  NodeId node;
  std::string key;  // X25519
  pb::Role role = pb::ROLE_NONE;
  bool allowed = false;
};

// The writes of one step.
struct Batch {
  std::uint64_t number = 0;  // 0: the step writes nothing
  std::vector<Write> writes;
  // A person removes a dataset or a run, or stops one to do so: this batch, and
  // those before it, are written on a full disk.
  bool makes_room = false;
};

struct Effects {
  Batch batch;
  std::vector<Send> sends;
  std::vector<Fetch> fetches;
  std::vector<Hash> cancel_fetches;
  std::vector<Drop> drops;
  std::vector<Hash>
      // stored objects to be read and hashed again, one after the other, beside
      // other work
      verifies;
  std::vector<RunId> seeks;  // runs whose records are asked for
  std::vector<Hash> reads;   // stored files whose content is asked for
  std::vector<RosterChange> roster;
  std::vector<ConnectionId> disconnects;
  Duration next{};  // boot time of the next Tick that is needed, at the latest
};

// ---- What is injected -------------------------------------------------------

class Rng {
 public:
  virtual ~Rng() = default;
  virtual void fill(std::span<unsigned char> out) = 0;
};

// The coordinator's identity, as far as the core needs it.
class Authority {
 public:
  virtual ~Authority() = default;
  // The id of the Ed25519 key in the request. kUnauthorised if the signature
  // does not prove its possession or its X25519 form is not `key`.
  virtual Result<NodeId> check_possession(const pb::EnrolRequest& request,
                                          const std::string& key) const = 0;
  // Signs; fills in the coordinator's key.
  virtual pb::Certificate certify(pb::CertificateBody body) const = 0;
  // The body, if this coordinator signed it and it has not expired. kCorrupt or
  // kUnauthorised otherwise.
  virtual Result<pb::CertificateBody> open(const pb::Certificate& certificate,
                                           std::int64_t unix_ms) const = 0;
};

// ---- The core ---------------------------------------------------------------

// A person or node that is rostered without a token: the first admin.
struct FirstAdmin {
  NodeId node;
  std::string ed25519_key;
  std::string x25519_key;
  std::string name = "admin";
};

struct FirstStart {
  pb::Certificate certificate;  // of the admin
  pb::TokenCreated token;       // that joins nodes
};

struct LeaseView {
  NodeId node;
  std::uint32_t slot = 0;
  std::uint64_t incarnation = 0;
  bool lapsed = false;  // ran out with nobody to take over: resumed if its holder comes back first
  bool operator==(const LeaseView&) const = default;
};

struct ExpertView {
  ExpertId id;
  Epoch epoch;
  std::uint32_t attempt = 0;
  std::optional<Hash> head;
  Step head_step = 0;
  std::optional<LeaseView> lease;
  bool yields = false;          // its holder is told to give it back at its next commit
  std::uint32_t copies = 1;     // wanted
  std::optional<Hash> pending;  // the checkpoint whose commit is fetched, or waits for its copies
  std::vector<NodeId> places;   // that its commits wait for, beside this disk
  std::vector<NodeId> stalled;  // that are not asked for a while
};

// An object that durable state names and the host must therefore have.
struct NamedObject {
  Hash manifest;
  Purpose purpose = Purpose::kFile;
  bool complete = false;  // false: a dataset's file that may still be on its way
  std::string needed_by;  // "run fashion, expert 3", for a message
};

// What records tell of a run, so that nodes can do without the coordinator.
struct RunFacts {
  pb::EnsembleReply about;             // what stays as it is while it goes on: no experts, no state
  std::vector<std::uint32_t> removed;  // from the ensemble, growing
  std::vector<pb::ExpertRecord> experts;  // those that have a head
};

struct Machine;

class Core {
 public:
  // Loads and checks a state; an empty one is a first start. kCorrupt names the
  // key that does not fit (S16). `config`, `rng` and `authority` outlive the
  // core.
  static Result<std::unique_ptr<Core>> load(const Config& config, Rng& rng,
                                            const Authority& authority,
                                            std::span<const KeyValue> state, Now now);
  ~Core();

  // Once, before the first step: roster, the start's event, the recovery
  // window.
  Effects start(Now now);
  Effects step(const Event& event, Now now);

  // On an empty state, after start: the admin and a token that joins nodes.
  // Told to people once effects.batch is durable.
  FirstStart first_start(const FirstAdmin& admin, Now now, Effects& effects);

  bool is_empty() const;  // nobody is rostered
  std::vector<NamedObject> objects() const;
  // Whether this node or person may read the object's chunks: people
  // everything, nodes their own experts' shards and heads, and what the routers
  // are made of.
  bool may_read(const NodeId& node, const Hash& manifest) const;
  // What durable state names, or an adoption waits for, and the disk lacks;
  // nobody has been asked for it lately.
  std::vector<Hash> lost_objects() const;
  // The node with this X25519 key, unless it is revoked.
  std::optional<NodeId> node_of_key(const std::string& key) const;
  // Durable once the last batch is.
  std::vector<RunFacts> run_facts() const;
  std::vector<NodeId> revoked() const;
  std::set<std::string> deleted_runs() const;  // by id; records of them are withdrawn
  // Since a restore: nobody is answered yet, and nodes are asked for the
  // revocations that they hold.
  bool recalls() const;
  // For invariants and tests.
  std::vector<ExpertView> experts() const;
  void experts(std::vector<ExpertView>& views) const;  // in the place of what they were
  std::uint64_t last_version() const;  // of any assignment; those made later are higher
  std::uint64_t last_batch() const;
  std::uint64_t persisted_batch() const;

  // What `restore` makes of a backup's state: its epochs' generation raised by
  // one, and their counters going on from `unix_ms`, the time of the restore.
  // So the epochs of two restores of one generation have none in common (S3).
  // Join tokens expire, since a backup does not know their later uses, unless
  // they are kept.
  enum class Tokens { kExpire, kKeep };
  static Result<std::vector<KeyValue>> restored(std::span<const KeyValue> state,
                                                std::int64_t unix_ms, Tokens tokens);
  // The state of a coordinator that lost all but its identity: nobody is
  // rostered, and epochs go on as after a restore.
  static std::vector<KeyValue> fresh(std::int64_t unix_ms);

 private:
  explicit Core(std::unique_ptr<Machine> machine);
  std::unique_ptr<Machine> machine_;
};

}  // namespace skerry::coordinator
